import { TOTP } from "otpauth";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { signUpOrg, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";
import { expectAccessible } from "./axe.ts";
import { onceLoaded, openBrowser } from "./browser.ts";
import { readOutbox } from "./outbox.ts";

const password = "correct horse battery staple";

/** A PNG of one pixel. */
const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4//8/AwAI/AL+p5qgoAAAAABJRU5ErkJggg==";

let platform: TestPlatform;
let browser: Browser;
let org: TestOrg;
let orgOrigin: string;

beforeAll(async () => {
  platform = await startTestPlatform();
  browser = await openBrowser();
  org = await signUpOrg(platform);
  orgOrigin = `http://${platform.host(org.slug)}`;
});
afterAll(async () => {
  await browser?.close();
  await platform?.close();
});

const newPage = async (): Promise<Page> => (await browser.newContext()).newPage();
const settings = async (of: TestOrg, body: object): Promise<void> => {
  const answer = await of.call({ method: "PATCH", path: "/v1/auth/settings", host: platform.host("api"), body });
  expect(answer.status, answer.text).toBe(200);
};
const linkTo = async (email: string, path: string): Promise<string> => {
  const found = await until(async () =>
    (await readOutbox(platform.platform.api.deps.config.dataDir))
      .filter(({ to }) => to === email)
      .map(({ text }) => new RegExp(`http://\\S+${path}\\?\\S+`).exec(text)?.[0])
      .find(Boolean),
  );
  return found;
};
const invitedKap = async (): Promise<string> => {
  const kap = await org.createKap("export default () => new Response('ok')");
  const path = `/v1/orgs/${org.id}/kaps/${kap.id}/audience`;
  const { policy } = (await org.call({ path })).json<{ policy: { revision: number } }>();
  const body = { audience: "invited", invited: ["@guests.example"], base_revision: policy.revision };
  expect((await org.call({ method: "PUT", path, body })).status).toBe(200);
  return `http://${platform.host(`${kap.slug}.kaps`)}`;
};
async function signIn(page: Page, email: string): Promise<void> {
  await (await onceLoaded(page.getByLabel("Email"))).fill(email);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}

test("signing in: the form, what it says when something is missing or wrong, and the page of who is signed in", async () => {
  const page = await newPage();
  await page.goto(`${orgOrigin}/sign-in`);
  await expectAccessible(page, "sign-in");
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.getByRole("alert").waitFor();
  await expectAccessible(page, "sign-in, fields missing");
  await page.getByLabel("Email").fill(`owner@${org.slug}.example`);
  await page.getByLabel("Password", { exact: true }).fill("wrong");
  await page.getByRole("button", { name: "Show the password" }).click();
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.getByText("The email or the password is wrong.").waitFor();
  await expectAccessible(page, "sign-in, wrong password, password shown");
  await signIn(page, `owner@${org.slug}.example`);
  await page.getByRole("heading", { name: "You are signed in" }).waitFor();
  await expectAccessible(page, "signed in");
});

test.each(["centered", "left-panel", "right-panel", "full-background"])(
  "an organisation's own look: %s, in each of its modes",
  async (layout) => {
    const own = await signUpOrg(platform);
    const page = await newPage();
    for (const mode of ["light", "dark"]) {
      await settings(own, { branding: { layout, mode, logo: pixel, background_image: pixel } });
      await page.goto(`http://${platform.host(own.slug)}/sign-in`);
      const widths = await page.evaluate<number[]>("[...document.images].map((image) => image.naturalWidth)");
      expect(widths).toEqual([1, 1]);
      await expectAccessible(page, `sign-in, ${layout}, mode ${mode}`);
    }
  },
);

test("hosts without an organisation, and forgotten passwords from the form to the link and the new password", async () => {
  const page = await newPage();
  await page.goto(`http://${platform.host("api")}/sign-in`);
  await expectAccessible(page, "which organisation");
  await page.goto(`http://${platform.host("nobody-here")}/sign-in`);
  await expectAccessible(page, "no organisation here");
  await page.goto(`${orgOrigin}/forgot`);
  await expectAccessible(page, "forgot");
  const own = await signUpOrg(platform);
  await page.goto(`http://${platform.host(own.slug)}/forgot`);
  await page.getByLabel("Email").fill(`owner@${own.slug}.example`);
  await page.getByRole("button", { name: "Send me a link" }).click();
  await page.getByRole("status").waitFor();
  await expectAccessible(page, "forgot, sent");
  await page.goto(await linkTo(`owner@${own.slug}.example`, "/reset"));
  await expectAccessible(page, "reset");
  await page.getByLabel("New password").fill("short");
  await page.getByRole("button", { name: "Set the password" }).click();
  await page.getByRole("alert").waitFor();
  await expectAccessible(page, "reset, refused");
  await page.getByLabel("New password").fill("another long and lovely phrase");
  await page.getByRole("button", { name: "Set the password" }).click();
  await page.getByRole("link", { name: "Sign in" }).waitFor();
  await expectAccessible(page, "reset, done");
});

test("joining by an invitation, setting up a second factor, and being asked for it", async () => {
  const home = await signUpOrg(platform);
  const email = `new@${home.slug}.example`;
  const invitation = { email, role: "member" };
  expect((await home.call({ method: "POST", path: "/v1/auth/invitations", host: platform.host("api"), body: invitation })).status).toBe(
    201,
  );
  const page = await newPage();
  await page.goto(await linkTo(email, "/join"));
  await expectAccessible(page, "join");
  await page.getByRole("button", { name: "Join" }).click();
  await page.getByRole("alert").waitFor();
  await expectAccessible(page, "join, refused");
  await page.getByLabel("Your name").fill("New Person");
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Join" }).click();
  await (await onceLoaded(page.getByRole("button", { name: "Sign out" }))).click();
  await page.getByLabel("Email").waitFor();
  await settings(home, { mfa: { mode: "enforced" } });
  await signIn(page, email);
  await page.getByRole("heading", { name: "Set up a second factor" }).waitFor();
  await page.locator(".key code").filter({ hasText: /\w/ }).waitFor();
  await expectAccessible(page, "enrol");
  const secret = ((await page.locator(".key code").textContent()) ?? "").replaceAll(" ", "");
  await page.getByLabel("Code", { exact: true }).fill(new TOTP({ secret }).generate());
  await page.getByRole("button", { name: "Confirm" }).click();
  await page.getByRole("heading", { name: "Keep these codes" }).waitFor();
  await expectAccessible(page, "backup codes");
  const backupCode = (await page.locator(".codes li").first().textContent()) ?? "";
  await page.getByRole("link", { name: "Go on" }).click();
  await (await onceLoaded(page.getByRole("button", { name: "Sign out" }))).click();
  await signIn(page, email);
  await page.getByText("Enter the code of your authenticator app, or a backup code.").waitFor();
  await expectAccessible(page, "code asked for");
  const elsewhere = await newPage();
  await elsewhere.goto(await linkTo(email, "/confirm"));
  await elsewhere.getByLabel("Email").waitFor(); // signed out: the link asks to sign in first
  await page.getByLabel(/^Code of your/).fill(backupCode);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.getByRole("heading", { name: "You are signed in" }).waitFor();
  await page.goto(await linkTo(email, "/confirm"));
  await expectAccessible(page, "confirm the address");
  await page.getByRole("button", { name: "Yes, it is mine" }).click();
  await page.getByRole("status").waitFor();
  await expectAccessible(page, "address confirmed");
});

test("a guest's way in: asking for a link, the mailed link, and links and kaps that are not there", async () => {
  const origin = await invitedKap();
  const page = await newPage();
  await page.goto(`${origin}/report`);
  await expectAccessible(page, "invited");
  await page.getByLabel("Email").fill("ada@guests");
  await page.evaluate("document.querySelector('form').noValidate = true");
  await page.getByLabel("Email").fill("no address");
  await page.getByRole("button", { name: "Send me a link" }).click();
  await page.getByRole("alert").waitFor();
  await expectAccessible(page, "invited, no address");
  await page.getByLabel("Email").fill("ada@guests.example");
  await page.getByRole("button", { name: "Send me a link" }).click();
  await page.getByRole("heading", { name: "Look into your mail" }).waitFor();
  await expectAccessible(page, "look into your mail");
  const link = await linkTo("ada@guests.example", "/__kaps/enter");
  await page.goto(link);
  await page.getByRole("button", { name: "Continue" }).waitFor();
  await expectAccessible(page, "guest's confirmation");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.waitForURL(`${origin}/report`);
  await page.goto(link);
  await page.getByRole("heading", { name: "This link is over" }).waitFor();
  await expectAccessible(page, "link over");
  await page.goto(`http://${platform.host("no-such-kap.kaps")}/__kaps/enter`);
  await expectAccessible(page, "a doorway without a kap");
  await page.goto(`${orgOrigin}/enter?kap=no-such-kap`);
  await page.getByRole("heading", { name: "No kap here" }).waitFor();
  await expectAccessible(page, "no kap here");
});

test("a member who is not on the list of an invited kap", async () => {
  const origin = await invitedKap();
  const page = await newPage();
  await page.goto(`${orgOrigin}/sign-in`);
  await signIn(page, `owner@${org.slug}.example`);
  await page.getByRole("heading", { name: "You are signed in" }).waitFor();
  await page.goto(`${origin}/`);
  await page.getByText("this kap is not open to you").waitFor();
  await expectAccessible(page, "not on the list");
});
