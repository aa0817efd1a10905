import { randomUUID } from "node:crypto";
import { afterAll, describe, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { joiner, sender, signUp, startServices } from "./auth-app.ts";

const app = await startServices(services);
afterAll(() => app.close());
const send = sender(app);
const join = joiner(app);

describe("sign-in settings", () => {
  const defaults = {
    branding: { layout: "centered", logo: null, background_image: null, mode: "light" },
    session: { lifetime_hours: 24, idle_timeout_minutes: null, lockout_threshold: 5, lockout_minutes: 15 },
    mfa: { mode: "optional" },
    password: { min_length: 15, uppercase: false, numbers: false, special: false },
  };
  const png = `data:image/png;base64,${Buffer.from("89504e470d0a1a0a0000", "hex").toString("base64")}`;

  test("have the contract's defaults; a change touches only what it names", async () => {
    const org = await signUp(app);
    expect((await send("GET", "/v1/auth/settings", org.auth)).json()).toEqual(defaults);
    const changed = await send("PATCH", "/v1/auth/settings", org.auth, {
      branding: { layout: "left-panel", mode: "dark", logo: png },
      session: { lockout_threshold: 3 },
      password: { numbers: true },
    });
    const expected = {
      branding: { ...defaults.branding, layout: "left-panel", mode: "dark", logo: png },
      session: { ...defaults.session, lockout_threshold: 3 },
      mfa: defaults.mfa,
      password: { ...defaults.password, numbers: true },
    };
    expect([changed.status, changed.json()]).toEqual([200, expected]);
    await send("PATCH", "/v1/auth/settings", org.auth, { session: { lockout_minutes: 1 }, branding: { logo: null } });
    expect((await send("GET", "/v1/auth/settings", org.auth)).json()).toEqual({
      ...expected,
      session: { ...expected.session, lockout_minutes: 1 },
      branding: { ...expected.branding, logo: null },
    });
  });

  test.each([
    [{ session: { lifetime_hours: 0 } }, "session.lifetime_hours"],
    [{ session: { lifetime_hours: 8761 } }, "session.lifetime_hours"],
    [{ session: { idle_timeout_minutes: 0 } }, "session.idle_timeout_minutes"],
    [{ session: { lockout_threshold: 0 } }, "session.lockout_threshold"],
    [{ session: { lockout_threshold: 101 } }, "session.lockout_threshold"],
    [{ password: { min_length: 7 } }, "password.min_length"],
    [{ password: { min_length: 129 } }, "password.min_length"],
    [{ mfa: { mode: "off" } }, "mfa.mode"],
    [{ branding: { layout: "middle" } }, "branding.layout"],
    [{ branding: { logo: "https://example.com/logo.png" } }, "branding.logo"],
    [{ branding: { logo: `data:image/png;base64,${Buffer.from("<svg onload=alert(1)>").toString("base64")}` } }, "branding.logo"],
    [
      {
        branding: {
          logo: `data:image/png;base64,${Buffer.concat([Buffer.from("89504e470d0a1a0a", "hex"), Buffer.alloc(128 * 1024)]).toString("base64")}`,
        },
      },
      "branding.logo",
    ],
    [{ unknown: 1 }, "unknown"],
    [{ session: { unknown: 1 } }, "session.unknown"],
  ])("422 for %.80j", async (body, path) => {
    const org = await signUp(app);
    const answer = await send("PATCH", "/v1/auth/settings", org.auth, body);
    expect(answer.status).toBe(422);
    expect(answer.json<{ details: { path: string }[] }>().details[0]?.path).toBe(path);
    expect((await send("GET", "/v1/auth/settings", org.auth)).json()).toEqual(defaults);
  });

  test("an image is stored as what its bytes are, at most 512 KiB for the background", async () => {
    const org = await signUp(app);
    const jpeg = Buffer.concat([Buffer.from("ffd8ffe0", "hex"), Buffer.alloc(512 * 1024 - 4)]);
    const answer = await send("PATCH", "/v1/auth/settings", org.auth, {
      branding: { background_image: `data:text/html;base64,${jpeg.toString("base64")}` },
    });
    expect(answer.status).toBe(200);
    expect(answer.json<{ branding: { background_image: string } }>().branding.background_image.slice(0, 23)).toBe(
      "data:image/jpeg;base64,",
    );
  });

  test("an image has an address of its own, which shows that image for good or nothing", async () => {
    const org = await signUp(app);
    const logoUrl = async (): Promise<string> =>
      (await app.call({ path: `/v1/auth/branding?org=${org.slug}` })).json<{ branding: { logo_url: string } }>().branding.logo_url;
    await send("PATCH", "/v1/auth/settings", org.auth, { branding: { logo: png } });
    const { host, pathname } = new URL(await logoUrl());
    const image = await app.call({ host, path: pathname });
    expect([image.status, image.headers["content-type"], image.bytes.toString("hex")]).toEqual([200, "image/png", "89504e470d0a1a0a0000"]);
    expect(image.headers).toMatchObject({
      "cache-control": "public, max-age=31536000, immutable",
      "x-content-type-options": "nosniff",
      "content-security-policy": "default-src 'none'; sandbox",
    });
    const other = `data:image/png;base64,${Buffer.from("89504e470d0a1a0a0001", "hex").toString("base64")}`;
    await send("PATCH", "/v1/auth/settings", org.auth, { branding: { logo: other } });
    expect((await app.call({ host, path: pathname })).status).toBe(404);
    expect((await app.call({ host, path: new URL(await logoUrl()).pathname })).status).toBe(200);
    expect((await app.call({ host, path: pathname.replace("/logo/", "/background_image/") })).status).toBe(404);
    expect((await app.call({ host, path: pathname.replace("/logo/", "/settings/") })).status).toBe(404);
  });

  test("the pages show layout, mode and both images, from addresses of their own host and as its policy for content allows", async () => {
    const org = await signUp(app);
    await send("PATCH", "/v1/auth/settings", org.auth, {
      branding: { layout: "right-panel", mode: "dark", logo: png, background_image: png },
    });
    for (const slug of [org.slug, `${org.slug}-test`]) {
      const host = `${slug}.localhost:8080`;
      for (const path of ["/sign-in", "/forgot", "/reset?token=x", "/join?token=x"]) {
        const page = await app.call({ host, path });
        const sources = [...page.text.matchAll(/<img[^>]* src="([^"]*)"/g)].map((match) => match[1] ?? "");
        expect([path, sources.map((source) => source.split("/").at(-2))]).toEqual([path, ["background_image", "logo"]]);
        for (const source of sources) expect((await app.call({ host, path: source })).headers["content-type"]).toBe("image/png");
        expect(page.headers["content-security-policy"]).toContain("img-src 'self' data:;");
        expect(page.text).toMatch(/data-mode="dark"[\s\S]*<body class="right-panel">/);
        expect(page.bytes.length).toBeLessThan(8 * 1024);
      }
    }
  });

  test("the branding is public by slug or host; owners and admins alone see and change the settings", async () => {
    const org = await signUp(app);
    await send("PATCH", "/v1/auth/settings", org.auth, { branding: { layout: "full-background" } });
    for (const request of [
      { path: `/v1/auth/branding?org=${org.slug}` },
      { path: "/v1/auth/branding", host: `${org.slug}.localhost:8080` },
    ]) {
      const answer = await app.call(request);
      expect([answer.status, answer.json()]).toEqual([
        200,
        {
          org: { slug: org.slug, name: org.slug },
          branding: { ...defaults.branding, layout: "full-background", logo_url: null, background_image_url: null },
        },
      ]);
    }
    expect((await app.call({ path: "/v1/auth/branding?org=no-such-org" })).status).toBe(404);
    expect((await app.call({ path: "/v1/auth/branding" })).status).toBe(422);
    for (const [role, status] of [
      ["admin", 200],
      ["member", 403],
      ["viewer", 403],
    ] as const) {
      const person = await join(org, role);
      expect([role, (await send("GET", "/v1/auth/settings", person.auth)).status]).toEqual([role, status]);
      expect([role, (await send("PATCH", "/v1/auth/settings", person.auth, { mfa: { mode: "optional" } })).status]).toEqual([role, status]);
    }
  });

  test("the password policy holds for whoever joins; the strictest of an account's organisations for its changes", async () => {
    const org = await signUp(app);
    await send("PATCH", "/v1/auth/settings", org.auth, { password: { min_length: 20, uppercase: true, numbers: true, special: true } });
    const invited = await send("POST", "/v1/auth/invitations", org.auth, { email: `p-${randomUUID()}@example.com`, role: "member" });
    const token = new URL(invited.json<{ accept_url: string }>().accept_url).searchParams.get("token");
    const accept = (password: string) => send("POST", "/v1/auth/invitations/accept", {}, { token, name: "P", password });
    const refused = await accept("a hill of oaks");
    expect(refused.json<{ details: unknown[] }>().details).toHaveLength(4);
    expect((await accept("A hill of 7 quiet oaks!")).status).toBe(200);
    const lax = await signUp(app, { email: org.email, password: org.password });
    const change = await send("POST", "/v1/auth/password", lax.auth, {
      current_password: org.password,
      new_password: "a plain but long one",
    });
    expect(change.status).toBe(422);
  });
});
