import { Readable } from "node:stream";
import type { Reply } from "../../http/route.ts";
import { type Html, html } from "./html.ts";
import { pageHeaders, renderPage } from "./page.ts";
import type { PageOrg } from "./page-org.ts";

const paths = { stylePath: "/assets/pages.css", scriptPath: "/assets/pages.js" };

/** A page of an organisation's host as a reply. */
export function pageReply(
  page: { title: string; main: Html; org?: PageOrg | null },
  options: { status?: number; formTargets?: string } = {},
): Reply {
  const text = renderPage({
    ...paths,
    title: page.title,
    main: page.main,
    ...(page.org ? { orgName: page.org.name, branding: page.org.branding } : {}),
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
