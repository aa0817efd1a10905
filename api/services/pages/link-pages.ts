import { z } from "zod";
import { open } from "../../http/access.ts";
import { type Route, route } from "../../http/route.ts";
import { alert, codeField, needsScript, passwordField } from "./form-fields.ts";
import { html } from "./html.ts";
import { findPageOrg, signedIn } from "./page-org.ts";
import { aPage, noSuchOrg, pageReply, queryText, redirect } from "./page-reply.ts";

/** Asking for the mailed link that resets a password, and the pages that mailed links open. What they do goes to the routes under /v1/auth. */
export const linkPages: readonly Route[] = [
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
    query: z.object({ token: queryText }),
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
          <p data-told="second_factor_removed" hidden>A second factor had been set up before this address was proved to be yours. It is removed: set up your own.</p>
          <p><a class="button" href="/sign-in">Sign in</a></p>
        </div>`;
      return pageReply({ title: "Choose a new password", org, main });
    },
  }),
  route({
    method: "GET",
    path: "/confirm",
    summary: "The page of a mailed link that proves an email; it asks to sign in first",
    access: open(),
    query: z.object({ token: queryText }),
    responses: { ...aPage, 302: { description: "To sign in" } },
    async handler({ deps, host, query, request, address, requestId }) {
      const org = await findPageOrg(deps, host);
      if (!org) return noSuchOrg(`${deps.addresses.api}/sign-in`);
      const token = query.token ?? "";
      const caller = await signedIn(deps, org, { request, address, requestId });
      if (!caller?.member || caller.mayOnlyEnrol) {
        const here = `/confirm?${new URLSearchParams({ token }).toString()}`;
        return redirect(`/sign-in?${new URLSearchParams({ next: here }).toString()}`);
      }
      const main = html`
        <h1>Is this your address?</h1>
        <p>You are signed in as <strong>${caller.member.email}</strong>.</p>
        ${needsScript}
        <form method="post" data-action="confirm-email" data-token="${token}">
          ${alert}
          <button type="submit">Yes, it is mine</button>
        </form>
        <p class="done" role="status" hidden>Thank you. Your second factor now stays when the password is reset.</p>`;
      return pageReply({ title: "Confirm your address", org, main });
    },
  }),
  route({
    method: "GET",
    path: "/join",
    summary: "The page of a mailed invitation: join the organisation",
    access: open(),
    query: z.object({ token: queryText }),
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
          ${codeField}
          <button type="submit">Join</button>
        </form>`;
      return pageReply({ title: "Join", org, main });
    },
  }),
];
