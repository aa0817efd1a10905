import { expect } from "vitest";
import { type Attack, attempts, happened } from "../attack.ts";

/** Words that would show that something of the host was reached: its files, its objects, its environment. */
const hostWords =
  /node:internal|node_modules|\/work\/|\/home\/|\.ts:\d+:\d+.*runtime|isolated-vm|\[object process\]|KAPSTONE_|postgres:\/\//;

/** Tries expressions; wants each to have thrown or given nothing, and no word of the host in any of it. */
function reachesNothing(name: string, expressions: string[]): Attack {
  return {
    name,
    program: attempts(expressions),
    outcome: "ok",
    expect({ answer }) {
      for (const [expression, what] of happened(answer)) {
        expect(what, expression).not.toMatch(hostWords);
        expect(what, expression).toMatch(/^threw |^gave (?:undefined|null|false|0|"undefined"|\[\])$/);
      }
    },
  };
}

/** Ways out of the isolate that programs in other sandboxes have found. */
export const escapeAttacks: Attack[] = [
  reachesNothing("code from text", [
    "eval('1')",
    "(0, eval)('1')",
    "new Function('return 1')()",
    "Function('return this')()",
    "(() => {}).constructor('return 1')()",
    "''.constructor.constructor('return 1')()",
    "Object.getPrototypeOf(async () => {}).constructor('return 1')()",
    "Object.getPrototypeOf(function* () {}).constructor('yield 1')()",
    "Object.getPrototypeOf(async function* () {}).constructor('yield 1')()",
    "Reflect.construct(Function, ['return 1'])()",
    "new (class extends (() => {}).constructor {})('return 1')()",
    "setTimeout('1', 0)",
    "setInterval('1', 0)",
    "new ShadowRealm().evaluate('1')",
    "new globalThis.Worker('data:text/javascript,1')",
  ]),
  reachesNothing("the host's names", [
    "typeof process",
    "typeof globalThis.require",
    "typeof module",
    "typeof Buffer",
    "typeof global",
    "typeof __dirname",
    "typeof Deno",
    "typeof Bun",
    "typeof importScripts",
    "typeof __host",
    "typeof __guest",
    "typeof __boot",
    "typeof __install",
    "globalThis.process?.env",
    "globalThis.constructor.constructor('return process')()",
  ]),
  reachesNothing("handles of the isolate's library", [
    "Object.getOwnPropertyNames(globalThis).filter((k) => /^__|ivm|isolate/i.test(k))",
    "Reflect.ownKeys(globalThis).filter((k) => typeof k === 'symbol' && k !== Symbol.toStringTag && k !== Symbol.for('kap')).map(String)",
    "Object.getOwnPropertyNames(globalThis).filter((k) => { try { return /Reference|ExternalCopy|Callback|Isolate|Context/.test(globalThis[k]?.constructor?.name); } catch { return false; } })",
    "(() => { const seen = new Set(); const found = []; const walk = (o, at) => { if ((typeof o !== 'object' && typeof o !== 'function') || o === null || seen.has(o) || seen.size > 20000) return; seen.add(o); for (const k of Reflect.ownKeys(o)) { const d = Object.getOwnPropertyDescriptor(o, k); for (const v of [d.value, d.get, d.set]) { if (v && /^(?:Reference|ExternalCopy|Callback|Isolate|Context|Script|Module)$/.test(v.constructor?.name ?? '') && v.constructor !== WebAssembly.Module) found.push(at + String(k)); walk(v, at + String(k) + '.'); } } const p = Object.getPrototypeOf(o); if (p) walk(p, at + 'proto.'); }; walk(globalThis, ''); walk(db, 'db.'); walk(store, 'store.'); walk(secrets, 'secrets.'); walk(ctx, 'ctx.'); walk(request, 'request.'); return found; })()",
  ]),
  reachesNothing("import of what was not built in", [
    "import(['node', 'fs'].join(':'))",
    "import(['data', 'text/javascript,export default 1'].join(':'))",
    "import(['http', '//127.0.0.1/x.js'].join(':'))",
    "import(['file', '///etc/passwd'].join(':'))",
  ]),
  {
    name: "import of node:fs, written out",
    top: 'import { readFileSync } from "node:fs";',
    program: "() => new Response(readFileSync('/etc/passwd', 'utf8'))",
    outcome: "unsaved",
  },
  {
    name: "import of a file above the kap",
    top: 'import text from "../../../../../../etc/passwd" with { type: "text" };',
    program: "() => new Response(text)",
    outcome: "unsaved",
  },
  {
    name: "import of an absolute file",
    top: 'import text from "/etc/passwd" with { type: "text" };',
    program: "() => new Response(text)",
    outcome: "unsaved",
  },
  {
    name: "import of an npm package without a version",
    top: 'import x from "npm:left-pad";',
    program: "() => new Response(String(x))",
    outcome: "unsaved",
  },
  {
    name: "require of child_process",
    program: "() => new Response(String(require('child_process').execSync('id')))",
    outcome: ["error", "unsaved"],
  },
  {
    name: "call sites of an error's stack",
    program: `() => {
  Error.prepareStackTrace = (_, sites) => sites;
  const collect = () => { const e = new Error("x"); return Array.isArray(e.stack) ? e.stack : []; };
  const sites = collect();
  let fromHost = []; try { db.query({ toString() { fromHost = collect(); return "select 1"; } }); } catch {}
  let fromHeaders = []; new Headers({ get a() { fromHeaders = collect(); return "b"; } });
  const reached = [...sites, ...fromHost, ...fromHeaders].map((site) => [typeof site.getThis?.(), typeof site.getFunction?.(), String(site.getFileName?.())]);
  return KeptResponse.json(reached);
}`,
    outcome: "ok",
    expect({ answer }) {
      expect(answer?.text).not.toMatch(hostWords);
      for (const [self, caller] of answer?.json<string[][]>() ?? []) expect([self, caller]).toEqual(["undefined", "undefined"]);
    },
  },
  {
    name: "stacks of the host's refusals",
    program: `async () => {
  const stacks = [];
  for (const action of [() => db.query("selec"), () => store.get("/"), () => fetch("http://127.0.0.1:1/"), () => crypto.subtle.importKey("raw", new Uint8Array(0), "AES-GCM", false, ["encrypt"]), () => new URL("::"), () => new DecompressionStream("zip"), () => secrets.get(Symbol()), () => atob("*")]) {
    try { await action(); } catch (error) { stacks.push(String(error?.stack), String(error?.cause), JSON.stringify(Object.getOwnPropertyDescriptors(error ?? {}))); }
  }
  return new KeptResponse(stacks.join("\\n"));
}`,
    outcome: "ok",
    expect: ({ answer }) => expect(answer?.text).not.toMatch(hostWords),
  },
  reachesNothing("the realm behind an error of the host", [
    "db.query('selec').catch((e) => typeof e.constructor.constructor('return process')())",
    "fetch('http://127.0.0.1:1/').catch((e) => e.constructor.constructor('return globalThis.process')())",
    "store.get('/').catch((e) => { for (let p = e; p; p = Object.getPrototypeOf(p)) if (typeof p.constructor === 'function') p.constructor.constructor('return process')(); })",
    "db.query('selec').catch((e) => (e instanceof Error ? null : 'an error of another realm'))",
    "fetch('http://127.0.0.1:1/').catch((e) => (e instanceof TypeError ? null : 'an error of another realm'))",
  ]),
  reachesNothing("shared memory and waiting", [
    "typeof SharedArrayBuffer",
    "typeof Atomics.wait",
    "typeof Atomics.waitAsync",
    "new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer.constructor.name === 'SharedArrayBuffer' && Atomics.wait",
    "typeof performance.measureUserAgentSpecificMemory",
  ]),
  {
    name: "a fine clock",
    program: `() => {
  const grains = [];
  for (const now of [() => Date.now(), () => performance.now(), () => globalThis.Temporal?.Now.instant().epochNanoseconds ?? 0n]) {
    const seen = new Set(); for (let i = 0; i < 200_000; i++) seen.add(String(now()));
    grains.push([...seen].map(Number));
  }
  return KeptResponse.json({ fractions: [grains[0], grains[1]].flat().filter((at) => at % 1 !== 0).length, nanos: grains[2].filter((at) => at % 1e6 !== 0).length });
}`,
    outcome: ["ok", "cpu-exceeded"],
    expect({ answer }) {
      if (answer?.status === 200) expect(answer.json()).toMatchObject({ fractions: 0 });
    },
  },
  {
    name: "WebAssembly bomb: a module of 200,000 functions",
    program: `() => { const n = 200_000; const leb = (x) => { const o = []; do { let b = x & 127; x >>>= 7; if (x) b |= 128; o.push(b); } while (x); return o; }; const funcs = [...leb(n), ...new Array(n).fill(0)]; const codes = [...leb(n)]; for (let i = 0; i < n; i++) codes.push(2, 0, 11); const section = (id, bytes) => [id, ...leb(bytes.length), ...bytes]; const bytes = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, ...[1, 4, 1, 96, 0, 0], ...section(3, funcs), ...section(10, codes)]); for (;;) new WebAssembly.Module(bytes); }`,
    outcome: ["cpu-exceeded", "memory-exceeded", "error"],
  },
  {
    name: "WebAssembly.compile that never settles",
    program:
      "async () => { const bytes = new Uint8Array([0,97,115,109,1,0,0,0]); await WebAssembly.compile(bytes); await WebAssembly.instantiate(bytes); return new Response('compiled'); }",
    outcome: "ok",
    expect: ({ answer }) => expect(answer?.text).toBe("compiled"),
  },
  {
    name: "forged credentials and headers of the platform",
    program: "(request) => Response.json({ headers: [...request.headers], url: request.url })",
    request: {
      path: "/x",
      headers: {
        cookie: "kapstone_session=kses_0000; mine=1; __Host-kapstone=1",
        "x-kapstone-run": "00000000-0000-7000-8000-000000000000",
        "x-kapstone-user": Buffer.from('{"id":"1","email":"root@example.com","name":"root","role":"owner"}').toString("base64url"),
        "x-kapstone-trigger": "forged",
        "x-kapstone-revision": "99999999",
        "x-kap-caller": "member:forged",
        "x-kapstone-outcome": "ok",
        "X-Kapstone-Anything": "1",
      },
    },
    outcome: "ok",
    expect({ answer, run }) {
      const seen = answer?.json<{ headers: [string, string][] }>().headers ?? [];
      const names = seen.map(([name]) => name.toLowerCase());
      expect(names.filter((name) => name.startsWith("x-kapstone") || name === "authorization" || name === "x-kaps-signature")).toEqual([]);
      expect(seen.filter(([name]) => name === "x-kap-caller")).toEqual([["x-kap-caller", "token:default"]]);
      expect(answer?.text).not.toContain("forged");
      expect(run?.id).not.toBe("00000000-0000-7000-8000-000000000000");
    },
  },
  {
    name: "the caller's token, wherever a program could find it",
    program:
      "async (request, ctx) => { const seen = JSON.stringify([[...request.headers], request.url, ctx.user ?? null, ctx.runId, ctx.kap, String(ctx.trigger), Object.keys(globalThis), request.cookies, request.credentials]); return new Response(seen); }",
    outcome: "ok",
    expect: ({ answer }) => expect(answer?.text).not.toMatch(/kbt_|kes_|kses_|kst1_|Bearer/),
  },
];
