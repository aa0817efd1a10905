// What `helm test` runs: every part answers that it is ready, and a kap can be made, called and deleted. The organisation `helm-test` stays and is used again.
import { request } from "node:http";
import { setTimeout as delay } from "node:timers/promises";

const { API, DOMAIN, PASSWORD, READY = "" } = process.env;
const account = { email: "helm-test@example.com", password: PASSWORD, org_slug: "helm-test" };
const answerMs = 30_000;

function ask(method, url, { host, token, body } = {}) {
  return new Promise((resolve, reject) => {
    const headers = { ...(host && { host }), ...(token && { authorization: `Bearer ${token}` }), "x-service-client": "helm-test" };
    if (body) headers["content-type"] = "application/json";
    const sent = request(url, { method, headers, timeout: answerMs }, async (response) => {
      let text = "";
      for await (const chunk of response) text += chunk;
      resolve({ status: response.statusCode, text, json: () => JSON.parse(text) });
    });
    sent.on("error", reject).on("timeout", () => sent.destroy(new Error(`${url} did not answer within ${answerMs} ms`)));
    sent.end(body && JSON.stringify(body));
  });
}

async function until(what, attempt) {
  const end = Date.now() + 120_000;
  for (let last = ""; ; await delay(1_000)) {
    try {
      return await attempt();
    } catch (error) {
      if (error.message !== last) console.log(`waiting for ${what}: ${error.message}`);
      last = error.message;
      if (error.isFinal || Date.now() > end) throw new Error(`${what}: ${error.message}`);
    }
  }
}

function expect(reply, ...statuses) {
  if (statuses.includes(reply.status)) return reply;
  const error = new Error(`answered ${reply.status}: ${reply.text.slice(0, 500)}`);
  // What was refused is refused again; what is not there yet may come.
  error.isFinal = reply.status >= 400 && reply.status < 500;
  throw error;
}

for (const url of READY.split(",")) {
  await until(url, async () => expect(await ask("GET", `${url}/readyz`), 200));
  console.log(`ready: ${url}`);
}

const host = `api.${DOMAIN}`;
const api = (method, path, more) => ask(method, API + path, { host, ...more });
const session = await until("signing in", async () => {
  const entered = await api("POST", "/v1/auth/login", { body: account });
  if (entered.status === 200) return entered.json();
  return expect(await api("POST", "/v1/auth/signup", { body: { ...account, name: "Helm test" } }), 201).json();
});
const token = session.session_token;
console.log("signed in");

const program = `import { db } from "kap";
export default async () => {
  await db.query("create table if not exists visits (at timestamptz not null default now())");
  await db.query("insert into visits default values");
  const { rows } = await db.query("select count(*)::int as count from visits");
  return Response.json({ visits: rows[0].count });
};`;
const kaps = `/v1/orgs/${account.org_slug}/kaps`;
const created = expect(
  await api("POST", kaps, { token, body: { name: "Helm test", main_file: "main.ts", files: [{ path: "main.ts", content: program }] } }),
  201,
).json();
const kap = created.data ?? created;
const slug = kap.slug ?? new URL(kap.address).hostname.split(".")[0];
console.log(`made the kap ${slug}`);
try {
  const call = () => ask("GET", `${API}/`, { host: `${slug}.kaps.${DOMAIN}`, token: kap.bypass_token });
  for (const visits of [1, 2]) {
    const reply = expect(await call(), 200);
    if (reply.json().visits !== visits) throw new Error(`the kap answered ${reply.text} instead of ${visits} visits`);
  }
  console.log("called it twice");
} finally {
  const deleted = await api("DELETE", `${kaps}/${slug}`, { token });
  console.log(`deleted it: ${deleted.status}`);
}
