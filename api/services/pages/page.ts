import { readFileSync, statSync } from "node:fs";
import { programFile } from "#platform/program-files.ts";
import { imagePath } from "../auth/branding.ts";
import { type Html, html } from "./html.ts";
import type { PageOrg } from "./page-org.ts";

/**
 * Headers of every page: nothing from outside, no script and no picture but this host's files and what a page holds itself (a QR code), not in a frame, and no
 * address with a token is told to the next page (its origin is, or browsers would send forms with `Origin: null`). `formTargets` are the addresses to which
 * the page's forms may lead, by redirects too; browsers hold all of them to it, so a form that leads into a kap's program has none.
 */
export function pageHeaders(formTargets?: string): Record<string, string> {
  const forms = formTargets === undefined ? "" : `; form-action ${formTargets}`;
  return {
    "content-security-policy": `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'${forms}`,
    "referrer-policy": "strict-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
  };
}

export interface Page {
  title: string;
  main: Html;
  stylePath: string;
  /** Path of a script, where the page has one. */
  scriptPath?: string;
  /** The organisation whose host shows the page, in its look. */
  org?: PageOrg;
}

/** A whole page. An organisation that has chosen no look of its own gets one that follows the reader's light or dark. */
export function renderPage({ title, main, stylePath, scriptPath, org }: Page): string {
  const branding = org?.branding;
  const isPlain =
    !branding || (branding.layout === "centered" && branding.mode === "light" && !branding.logo && !branding.background_image);
  const background = org && imagePath(org.branding, "background_image", org.slug);
  const page = html`<!doctype html>
<html lang="en" data-mode="${isPlain ? "auto" : branding.mode}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${org ? `${title} · ${org.name}` : title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${stylePath}">
${scriptPath ? html`<script type="module" src="${scriptPath}"></script>` : null}
</head>
<body class="${branding?.layout ?? "centered"}">
${background ? html`<img class="backdrop" src="${background}" alt="">` : html`<div class="backdrop"></div>`}
<main>
${org ? brand(org) : null}
${main}
</main>
</body>
</html>
`;
  return page.text;
}

function brand({ name, slug, branding }: PageOrg): Html {
  const logo = imagePath(branding, "logo", slug);
  return html`<p class="brand">${
    logo
      ? html`<img src="${logo}" alt="${name}">`
      : html`<span class="monogram" aria-hidden="true">${[...name][0]?.toUpperCase() ?? ""}</span><span>${name}</span>`
  }</p>`;
}

const read = new Map<string, { text: string; mtimeMs: number }>();

/** A file of the folder `web`, read again when it has changed: whoever works on it sees the change at the next request. */
export function webFile(name: string): string {
  const path = programFile(`web/${name}`);
  const { mtimeMs } = statSync(path);
  const known = read.get(name);
  if (known?.mtimeMs === mtimeMs) return known.text;
  const text = readFileSync(path, "utf8");
  read.set(name, { text, mtimeMs });
  return text;
}

/** The style of all pages. */
export function stylesheet(): string {
  return webFile("pages.css");
}
