import { Readable } from "node:stream";
import { z } from "zod";
import type { Refusal } from "../../http/refusal.ts";
import type { Reply } from "../../http/route.ts";
import { type Html, html } from "./html.ts";
import { pageHeaders, renderPage } from "./page.ts";
import type { PageOrg } from "./page-org.ts";

const paths = { stylePath: "/assets/pages.css", scriptPath: "/assets/pages.js" };

/** What the pages of an organisation's host answer. */
export const aPage = {
  200: { description: "A page", contentType: "text/html" },
  404: { description: "A page: no organisation has this host" },
};
/** A parameter of a page's address: one that cannot be meant counts as none, since a person cannot mend it. */
export const queryText = z.string().max(4_000).optional().catch(undefined);

/** A page of an organisation's host as a reply. */
export function pageReply(
  page: { title: string; main: Html; org?: PageOrg | null },
  options: { status?: number; formTargets?: string } = {},
): Reply {
  const text = renderPage({
    ...paths,
    title: page.title,
    main: page.main,
    ...(page.org ? { org: page.org } : {}),
  });
  return {
    status: options.status ?? 200,
    headers: {
      ...pageHeaders(options.formTargets ?? "'self'"),
      "content-type": "text/html; charset=utf-8",
      "content-length": String(Buffer.byteLength(text)),
    },
    stream: Readable.from([Buffer.from(text)]),
  };
}

/** A refusal in the platform's words, for a person. */
export function refusalPage(refusal: Refusal): { headers: Record<string, string>; text: string } {
  const title = "That did not work";
  const text = renderPage({ ...paths, title, main: html`<h1>${title}</h1><p>${refusal.message}</p>` });
  return { headers: { ...pageHeaders("'none'"), "content-type": "text/html; charset=utf-8" }, text };
}

/** A redirect that tells nobody where it came from. */
export function redirect(location: string, status: 302 | 303 = 302): Reply {
  return { status, headers: { location, "cache-control": "no-store", "referrer-policy": "no-referrer" } };
}

/** The page of a host that is no organisation's. */
export function noSuchOrg(signInAddress: string): Reply {
  return pageReply(
    {
      title: "No organisation here",
      main: html`<h1>No organisation here</h1>
        <p>This address is not an organisation's. Check it for a typing error.</p>
        <p><a class="button" href="${signInAddress}">Find your organisation</a></p>`,
    },
    { status: 404 },
  );
}
