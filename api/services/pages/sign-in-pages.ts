import { z } from "zod";
import { addressWithin, pathWithin } from "../../gateway/hand-over-path.ts";
import { open } from "../../http/access.ts";
import { slugPattern } from "../../http/hosts.ts";
import { type Route, route } from "../../http/route.ts";
import { alert, codeField, needsScript, passwordField } from "./form-fields.ts";
import { type Html, html } from "./html.ts";
import { findPageOrg, type PageOrg, signedIn } from "./page-org.ts";
import { aPage, noSuchOrg, pageReply, queryText, redirect } from "./page-reply.ts";

/** Forms of a script say `post` too: sent without it they are refused, and never put a password into an address. */
function signInForm(next: string): Html {
  return html`
    <h1>Sign in</h1>
    ${needsScript}
    <form method="post" data-action="sign-in" data-next="${next}" novalidate>
      ${alert}
      <div class="field">
        <label for="email">Email</label>
        <input id="email" name="email" type="email" required maxlength="254" autocomplete="username" autocapitalize="none" spellcheck="false" autofocus>
      </div>
      ${passwordField("password", "Password", "current-password")}
      ${codeField}
      <button type="submit">Sign in</button>
    </form>
    <p class="hint"><a href="/forgot">Forgot the password?</a></p>
    <section data-step="enrol" hidden>
      <h2>Set up a second factor</h2>
      <p>This organisation asks for one. Scan the picture with an authenticator app, or type the key below it, then enter the code the app shows.</p>
      <div class="qr"></div>
      <p class="key"><code></code></p>
      <form method="post" data-action="enrol" novalidate>
        ${alert}
        <div class="field">
          <label for="enrol-code">Code</label>
          <input id="enrol-code" name="code" inputmode="numeric" required maxlength="40" autocomplete="one-time-code">
        </div>
        <button type="submit">Confirm</button>
      </form>
    </section>
    <section data-step="backup" hidden>
      <h2>Keep these codes</h2>
      <p>Each works once in place of the app. They are shown this once.</p>
      <ul class="codes"></ul>
      <p><a class="button" href="${next}">Go on</a></p>
    </section>`;
}

function signedInPage(org: PageOrg, name: string, email: string): Html {
  return html`
    <h1>You are signed in</h1>
    <p>As <strong>${name}</strong> (${email}) of ${org.name}.</p>
    <form method="post" data-action="sign-out" data-next="/sign-in">
      ${alert}
      <button type="submit">Sign out</button>
    </form>`;
}

const whichOrg = html`
  <h1>Which organisation?</h1>
  <p>You sign in at your organisation's own address.</p>
  <form method="get" action="/sign-in">
    <div class="field">
      <label for="org">Short name of the organisation</label>
      <input id="org" name="org" required minlength="3" maxlength="63" pattern="[a-z][a-z0-9\\-]+" autocapitalize="none" spellcheck="false" autocomplete="organization" autofocus>
    </div>
    <button type="submit">Go on</button>
  </form>`;

/** The pages on which people sign in, and of who is signed in. What they do goes to the routes under /v1/auth. */
export const signInPages: readonly Route[] = [
  route({
    method: "GET",
    path: "/sign-in",
    summary: "The page to sign in; `next` is a path of the same host to go on to",
    description: "On a host that is no organisation's it asks which organisation, and leads to that host.",
    access: open(),
    query: z.object({ next: queryText, org: queryText }),
    responses: { ...aPage, 302: { description: "Signed in already, or the organisation's own host" } },
    async handler({ deps, host, query, request, address, requestId }) {
      const { addresses } = deps;
      if (host.zone !== "org") {
        const slug = query.org?.trim().toLowerCase() ?? "";
        if (slugPattern.test(slug)) return redirect(`${addresses.org(slug)}/sign-in`);
        return pageReply(
          { title: "Sign in", main: whichOrg },
          { formTargets: `'self' ${addresses.scheme}://*.${addresses.domain}${addresses.portSuffix}` },
        );
      }
      const org = await findPageOrg(deps, host);
      if (!org) return noSuchOrg(`${addresses.api}/sign-in`);
      const origin = addresses.org(org.slug);
      const next = query.next === undefined ? "/sign-in" : pathWithin(origin, query.next);
      const caller = await signedIn(deps, org, { request, address, requestId });
      if (caller?.member && !caller.mayOnlyEnrol) {
        if (query.next !== undefined && new URL(next, origin).pathname !== "/sign-in") return redirect(addressWithin(origin, next));
        return pageReply({ title: "Signed in", org, main: signedInPage(org, caller.member.name, caller.member.email) });
      }
      return pageReply({ title: "Sign in", org, main: signInForm(next) });
    },
  }),
];
