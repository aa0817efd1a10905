import { Readable } from "node:stream";
import { open } from "../../http/access.ts";
import { notFound } from "../../http/refusal.ts";
import { type Route, route, type Service } from "../../http/route.ts";
import { enterPages } from "./enter-pages.ts";
import { guestLinkJob, mailGuestLink } from "./guest-link.ts";
import { linkPages } from "./link-pages.ts";
import { pageHeaders, webFile } from "./page.ts";
import { refusalPage } from "./page-reply.ts";
import { signInPages } from "./sign-in-pages.ts";

const assets: Readonly<Record<string, string>> = {
  "pages.css": "text/css; charset=utf-8",
  "pages.js": "text/javascript; charset=utf-8",
};

const asset: Route = route({
  method: "GET",
  path: "/assets/{name}",
  summary: "A file of the pages",
  access: open(),
  responses: { 200: { description: "The file", contentType: "application/octet-stream" } },
  async handler({ params }) {
    const type = assets[params.name ?? ""];
    if (type === undefined) throw notFound(`the file ${params.name}`);
    const text = webFile(params.name ?? "");
    return {
      status: 200,
      headers: { ...pageHeaders("'none'"), "content-type": type, "cache-control": "public, max-age=3600" },
      stream: Readable.from([Buffer.from(text)]),
    };
  },
});

/** The web pages of people who sign in: on the organisation's host, in its look, and without an outside address. */
export const pagesService: Service = {
  name: "pages",
  envelope: "nested",
  refusalPage,
  routes: [...signInPages, ...linkPages, ...enterPages, asset],
  jobs: (deps) => ({ [guestLinkJob]: (payload) => mailGuestLink(deps, payload) }),
};
