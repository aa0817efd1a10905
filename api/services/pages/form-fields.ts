import { type Html, html } from "./html.ts";

/** Where the script of a page says what went wrong. */
export const alert = html`<p class="alert" role="alert" hidden></p>`;
/** What a page whose form its script sends says to a browser without one. */
export const needsScript = html`<noscript><p class="alert">This page needs JavaScript, which is switched off in your browser.</p></noscript>`;

/** The field for a second factor, hidden until the script finds that one is asked for. */
export const codeField = html`
  <div class="field" data-field="code" hidden>
    <label for="code">Code of your authenticator app, or a backup code</label>
    <input id="code" name="code" autocomplete="one-time-code" autocapitalize="none" spellcheck="false" disabled>
  </div>`;

/** A field for a password, with a button that shows it. */
export const passwordField = (name: string, label: string, autocomplete: string): Html => html`
  <div class="field">
    <label for="${name}">${label}</label>
    <div class="reveal">
      <input id="${name}" name="${name}" type="password" required maxlength="1024" autocomplete="${autocomplete}">
      <button type="button" class="quiet" data-reveal="${name}" aria-label="Show the password">Show</button>
    </div>
  </div>`;
