import { z } from "zod";
import { addJob } from "#platform/jobs.ts";
import type { Deps } from "../../deps.ts";
import { mintHandOver } from "../../gateway/hand-over-code.ts";
import { pathWithin } from "../../gateway/hand-over-path.ts";
import { mayEnter } from "../../gateway/hand-over-visitor.ts";
import { open } from "../../http/access.ts";
import { readBody } from "../../http/body.ts";
import { checkRate } from "../../http/rate-limit.ts";
import { Refusal } from "../../http/refusal.ts";
import { type Route, route } from "../../http/route.ts";
import { emailDigest } from "../auth/account.ts";
import type { KapRow } from "../kaps/kap.ts";
import { guestLinkJob } from "./guest-link.ts";
import { type Html, html } from "./html.ts";
import { findPageOrg, type PageOrg, signedIn } from "./page-org.ts";
import { noSuchOrg, pageReply, queryText, redirect } from "./page-reply.ts";

const formBytes = 8 * 1024;
const linksPerHour = 5;
const secondsPerHour = 3_600;
const email = z.string().trim().toLowerCase().max(254).pipe(z.email());
const browserForm = /^[\w-]{43}$/; // 32 bytes in base64url

type EnteredKap = Pick<KapRow, "id" | "slug" | "name" | "audience" | "invited" | "org_id">;

async function findOwnKap(deps: Deps, org: PageOrg, slug: string | undefined): Promise<EnteredKap | null> {
  const row: EnteredKap | undefined = await deps
    .db("kaps")
    .where({ slug: slug ?? "", org_id: org.id })
    .first("id", "slug", "name", "audience", "invited", "org_id");
  return row ?? null;
}

function noSuchKap(org: PageOrg) {
  const main = html`<h1>No kap here</h1><p>${org.name} has no kap of this name. Check the address for a typing error.</p>`;
  return pageReply({ title: "No kap here", org, main }, { status: 404 });
}

function linkForm(kap: EnteredKap, to: string, problem: string | null): Html {
  return html`
    <form method="post" action="/enter/link">
      ${problem === null ? null : html`<p class="alert" role="alert" id="problem">${problem}</p>`}
      <input type="hidden" name="kap" value="${kap.slug}">
      <input type="hidden" name="to" value="${to}">
      <div class="field">
        <label for="email">Email</label>
        <input id="email" name="email" type="email" required maxlength="254" autocomplete="email" autocapitalize="none" spellcheck="false" autofocus>
      </div>
      <button type="submit">Send me a link</button>
    </form>`;
}

/** What a signed-out person meets at a kap for invited people. Whether a member could enter instead is for them to try. */
function invitedPage(kap: EnteredKap, to: string, signIn: string, problem: string | null = null): Html {
  return html`
    <h1>${kap.name}</h1>
    <p>This kap is for invited people. If you are one, a link that opens it is mailed to you.</p>
    ${linkForm(kap, to, problem)}
    <p class="hint">A member of the organisation? <a href="${signIn}">Sign in</a></p>`;
}

/** Getting from the organisation's host, where the session is, to a kap's own host. */
export const enterPages: readonly Route[] = [
  route({
    method: "GET",
    path: "/enter",
    summary: "Hand a signed-in member over to a kap's own host",
    description:
      "A signed-out browser that meets a kap for members or invited people is sent here. With a session it goes back with a code that is good once, within 60 seconds and in this browser only; without one it is sent to sign in, or, for an invited kap, offered a mailed link.",
    access: open(),
    query: z.object({ kap: queryText, to: queryText, browser: queryText }),
    responses: {
      200: { description: "A page: how to get in", contentType: "text/html" },
      302: { description: "To the kap, or to sign in" },
      403: { description: "A page: signed in, but not among those the kap is for" },
      404: { description: "A page: no such kap or organisation" },
    },
    async handler({ deps, host, query, request, address, requestId }) {
      const org = await findPageOrg(deps, host);
      if (!org) return noSuchOrg(`${deps.addresses.api}/sign-in`);
      const kap = await findOwnKap(deps, org, query.kap);
      if (!kap) return noSuchKap(org);
      const kapHost = deps.addresses.kap(kap.slug);
      const to = pathWithin(kapHost, query.to);
      const doorway = (values: Record<string, string>): string => `${kapHost}/__kaps/enter?${new URLSearchParams(values).toString()}`;
      if (!query.browser || !browserForm.test(query.browser)) return redirect(doorway({ to }));
      const here = `/enter?${new URLSearchParams({ kap: kap.slug, to, browser: query.browser }).toString()}`;
      const signIn = `/sign-in?${new URLSearchParams({ next: here }).toString()}`;
      const caller = await signedIn(deps, org, { request, address, requestId });
      if (!caller?.member) {
        if (kap.audience !== "invited") return redirect(signIn);
        return pageReply({ title: kap.name, org, main: invitedPage(kap, to, signIn) });
      }
      if (caller.mayOnlyEnrol) return redirect(signIn);
      const isOwn = caller.org.id === kap.org_id;
      if (!mayEnter(kap, { email: caller.member.email, isOwn, isGuest: false })) {
        const main = html`
          <h1>${kap.name}</h1>
          <p>You are signed in as <strong>${caller.member.email}</strong>, and this kap is not open to you. Ask whoever keeps it to add your address.</p>
          <form method="post" data-action="sign-out" data-next="${here}"><p class="alert" role="alert" hidden></p><button type="submit" class="secondary">Sign in as somebody else</button></form>`;
        return pageReply({ title: kap.name, org, main }, { status: 403 });
      }
      const browser = Buffer.from(query.browser, "base64url");
      const code = await mintHandOver(deps.db, kap.id, { credentialId: caller.credentialId, browser });
      return redirect(doorway({ code, to }));
    },
  }),
  route({
    method: "POST",
    path: "/enter/link",
    summary: "Ask for a mailed link to a kap for invited people",
    description:
      "Always the same answer: the list is looked at afterwards, and the link is mailed if the address, or its @domain, is on it.",
    access: open(),
    limit: "login",
    rawBody: { raw: true, description: "The form: kap, to, email", contentTypes: ["application/x-www-form-urlencoded"] },
    bodyLimit: formBytes,
    responses: {
      200: { description: "A page: if the address was invited, a link is on its way", contentType: "text/html" },
      403: { description: "A page for browsers, else JSON: the form was sent from another site" },
      422: { description: "A page: this is no address", contentType: "text/html" },
      429: { description: "A page for browsers, else JSON: too many links to this address, or from yours" },
    },
    async handler({ deps, host, request }) {
      const org = await findPageOrg(deps, host);
      if (!org) return noSuchOrg(`${deps.addresses.api}/sign-in`);
      const { origin } = request.headers;
      if (origin !== undefined && origin !== `${deps.addresses.scheme}://${request.headers.host}`)
        throw new Refusal(403, "ORIGIN_MISMATCH", "this form was sent from another site: open the kap itself");
      const form = new URLSearchParams((await readBody(request, formBytes)).toString("utf8"));
      const kap = await findOwnKap(deps, org, form.get("kap") ?? undefined);
      if (!kap) return noSuchKap(org);
      const to = pathWithin(deps.addresses.kap(kap.slug), form.get("to"));
      const again = `${deps.addresses.kap(kap.slug)}/__kaps/enter?${new URLSearchParams({ to }).toString()}`;
      const given = email.safeParse(form.get("email") ?? "");
      if (!given.success) {
        const main = invitedPage(kap, to, again, "This is not an email address: check it.");
        return pageReply({ title: kap.name, org, main }, { status: 422 });
      }
      const bucket = `guest-link:${emailDigest(`${kap.id} ${given.data}`).toString("base64url")}`;
      checkRate(await deps.limiter.take(bucket, linksPerHour, secondsPerHour), "links an hour to this address");
      await addJob(deps.db, guestLinkJob, { kap_id: kap.id, email: given.data, to });
      const main = html`
        <h1>Look into your mail</h1>
        <p>If <strong>${given.data}</strong> was invited to ${kap.name}, a link is on its way. It works once, for 15 minutes.</p>
        <p class="hint"><a href="${again}">Use another address</a></p>`;
      return pageReply({ title: "Look into your mail", org, main });
    },
  }),
];
