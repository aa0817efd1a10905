import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import type { Tree } from "./tree.ts";

/** The kap whose losses are counted: every row is committed before the answer that acknowledges it. */
export interface Subject {
  org: TestOrg;
  kap: TestKap;
  mailAddress: string;
  /** Path of the kap's own routes. */
  path: string;
}

/** Its program in version `n`. `/stream` goes on for a while after its first byte. */
export const program = (n: number): string => `
import { db, store } from "kap";
const version = ${n};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export default {
  async fetch(request) {
    const url = new URL(request.url);
    const key = url.searchParams.get("key");
    if (url.pathname === "/setup") {
      await db.query("create table acknowledged (key text primary key, at timestamptz not null default now())");
      await db.query("create table mails (subject text not null, run text not null)");
      await store.put("kept", "kept bytes");
      return new Response("ready");
    }
    if (url.pathname === "/kept") return new Response(await (await store.get("kept")).text());
    await db.query("insert into acknowledged (key) values ($1)", [key]);
    const text = "v" + version + " " + key;
    if (url.pathname !== "/stream") return new Response(text);
    const encoder = new TextEncoder();
    return new Response(new ReadableStream({
      async start(controller) {
        controller.enqueue(encoder.encode(text));
        for (let i = 0; i < 8; i++) {
          await pause(40);
          controller.enqueue(encoder.encode("."));
        }
        controller.close();
      },
    }));
  },
  async email(message, ctx) {
    await db.query("insert into mails (subject, run) values ($1, $2)", [message.subject, ctx.runId]);
  },
};`;

/** Signs up an organisation on the tree and makes the kap, its tables, its file and its inbox. */
export async function createSubject(tree: Tree): Promise<Subject> {
  const org = await signUpOrg(tree);
  const kap = await org.createKap(program(1));
  const path = `/v1/orgs/${org.id}/kaps/${kap.id}`;
  const made = await kap.call({ path: "/setup" });
  if (made.status !== 200) throw new Error(`the kap was not set up: ${made.status} ${made.text}`);
  const inbox = await org.call({ method: "POST", path: `${path}/triggers`, body: { kind: "inbox", file_path: "main.ts" } });
  if (inbox.status !== 201) throw new Error(`the inbox was not made: ${inbox.status} ${inbox.text}`);
  return { org, kap, path, mailAddress: `${kap.slug}@mail.localhost` };
}
