import { z } from "zod";
import { addressWithin, pathWithin } from "../../gateway/hand-over-path.ts";
import { open } from "../../http/access.ts";
import { slugPattern } from "../../http/hosts.ts";
import { type Route, route } from "../../http/route.ts";
import { type Html, html } from "./html.ts";
import { findPageOrg, type PageOrg, signedIn } from "./page-org.ts";
import { noSuchOrg, pageReply, redirect } from "./page-reply.ts";

const aPage = { 200: { description: "A page", contentType: "text/html" }, 404: { description: "A page: no organisation has this host" } };
const text = z.string().max(4_000).optional().catch(undefined);

/** Where the script of a page says what went wrong. */
const alert = html`<p class="alert" role="alert" hidden></p>`;
const needsScript = html`<noscript><p class="alert">This page needs JavaScript, which is switched off in your browser.</p></noscript>`;

const codeField = (isHidden: boolean): Html => html`
  <div class="field" data-field="code" ${isHidden ? "hidden" : ""}>
    <label for="code">Code of your authenticator app, or a backup code</label>
    <input id="code" name="code" autocomplete="one-time-code" autocapitalize="none" spellcheck="false" ${isHidden ? "disabled" : ""}>
  </div>`;

const passwordField = (name: string, label: string, autocomplete: string): Html => html`
  <div class="field">
    <label for="${name}">${label}</label>
    <div class="reveal">
      <input id="${name}" name="${name}" type="password" required maxlength="1024" autocomplete="${autocomplete}">
      <button type="button" class="quiet" data-reveal="${name}" aria-label="Show the password">Show</button>
    </div>
  </div>`;

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
      ${codeField(true)}
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

/** The pages on which people sign in, choose a new password and accept an invitation. What they do goes to the routes under /v1/auth. */
export const signInPages: readonly Route[] = [
  route({
    method: "GET",
    path: "/sign-in",
    summary: "The page to sign in; `next` is a path of the same host to go on to",
    description: "On a host that is no organisation's it asks which organisation, and leads to that host.",
    access: open(),
    query: z.object({ next: text, org: text }),
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
  route({
    method: "GET",
    path: "/forgot",
    summary: "The page to ask for a link that resets a password",
    access: open(),
    responses: aPage,
    async handler({ deps, host }) {
      const org = await findPageOrg(deps, host);
      if (host.zone === "org" && !org) return noSuchOrg(`${deps.addresses.api}/sign-in`);
      const main = html`
        <h1>Forgot the password?</h1>
        ${needsScript}
        <form method="post" data-action="forgot" novalidate>
          ${alert}
          <div class="field">
            <label for="email">Email</label>
            <input id="email" name="email" type="email" required maxlength="254" autocomplete="username" autocapitalize="none" spellcheck="false" autofocus>
          </div>
          <button type="submit">Send me a link</button>
        </form>
        <p class="done" role="status" hidden>If this email has an account, a link is on its way. It works once, for an hour.</p>
        <p class="hint"><a href="/sign-in">Back to sign in</a></p>`;
      return pageReply({ title: "Forgot the password?", org, main });
    },
  }),
  route({
    method: "GET",
    path: "/reset",
    summary: "The page of a mailed link: choose a new password",
    access: open(),
    query: z.object({ token: text }),
    responses: aPage,
    async handler({ deps, host, query }) {
      const org = await findPageOrg(deps, host);
      if (host.zone === "org" && !org) return noSuchOrg(`${deps.addresses.api}/sign-in`);
      const main = html`
        <h1>Choose a new password</h1>
        ${needsScript}
        <form method="post" data-action="reset" data-token="${query.token ?? ""}" novalidate>
          ${alert}
          ${passwordField("new_password", "New password", "new-password")}
          <button type="submit">Set the password</button>
        </form>
        <div class="done" role="status" hidden>
          <p>The password is set. Everywhere else you are signed out.</p>
          <p><a class="button" href="/sign-in">Sign in</a></p>
        </div>`;
      return pageReply({ title: "Choose a new password", org, main });
    },
  }),
  route({
    method: "GET",
    path: "/join",
    summary: "The page of a mailed invitation: join the organisation",
    access: open(),
    query: z.object({ token: text }),
    responses: aPage,
    async handler({ deps, host, query }) {
      const org = await findPageOrg(deps, host);
      if (!org) return noSuchOrg(`${deps.addresses.api}/sign-in`);
      const main = html`
        <h1>Join ${org.name}</h1>
        <p>If your email has an account here already, enter its password; else choose one.</p>
        ${needsScript}
        <form method="post" data-action="join" data-token="${query.token ?? ""}" data-next="/sign-in" novalidate>
          ${alert}
          <div class="field">
            <label for="name">Your name</label>
            <input id="name" name="name" maxlength="100" autocomplete="name" autofocus>
          </div>
          ${passwordField("password", "Password", "new-password")}
          ${codeField(true)}
          <button type="submit">Join</button>
        </form>`;
      return pageReply({ title: "Join", org, main });
    },
  }),
];
