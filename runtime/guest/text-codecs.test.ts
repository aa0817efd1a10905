import { describe } from "vitest";
import { conformance } from "./testing-cases.ts";

const bytes = (list: number[]) => `new Uint8Array([${list.join(",")}])`;
const samples: [string, number[]][] = [
  ["windows-1252", [0x80, 0x41, 0xff, 0x81]],
  ["latin1", [0x80, 0x9f]],
  ["iso-8859-2", [0xa1, 0xb1]],
  ["koi8-r", [0xc1, 0xc2]],
  ["shift_jis", [0x93, 0xfa, 0x96, 0x7b]],
  ["euc-jp", [0xc6, 0xfc, 0xcb, 0xdc]],
  ["iso-2022-jp", [0x1b, 0x24, 0x42, 0x46, 0x7c, 0x1b, 0x28, 0x42]],
  ["gbk", [0xd6, 0xd0]],
  ["gb18030", [0x84, 0x31, 0xa4, 0x37]],
  ["big5", [0xa4, 0xa4]],
  ["euc-kr", [0xc7, 0xd1]],
  ["utf-16le", [0x3d, 0xd8, 0x00, 0xde, 0x41]],
  ["utf-16be", [0xd8, 0x3d, 0xde, 0x00, 0x00, 0x41]],
];

describe("TextDecoder", () => {
  conformance({
    ...Object.fromEntries(
      samples.map(([label, list]) => [
        `decodes ${label}`,
        `const d = new TextDecoder("${label}"); return [d.encoding, d.decode(${bytes(list)})];`,
      ]),
    ),
    ...Object.fromEntries(
      samples.map(([label, list]) => [
        `streams ${label}`,
        `const d = new TextDecoder("${label}"); let t = ""; for (const b of ${bytes(list)}) t += d.decode(new Uint8Array([b]), { stream: true }); return t + d.decode();`,
      ]),
    ),
    labels: `return ["UTF8", " utf-8 ", "unicode-1-1-utf-8", "ascii", "l1", "utf-16", "x-sjis"].map((l) => new TextDecoder(l).encoding);`,
    "unknown labels throw": `return [await caught(() => new TextDecoder("nope")), await caught(() => new TextDecoder("replacement"))];`,
    fatal: `return [await caught(() => new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([0xff]))), new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([0x61]))];`,
    "fatal at the end of a stream": `const d = new TextDecoder("utf-8", { fatal: true }); d.decode(new Uint8Array([0xe2]), { stream: true }); return caught(() => d.decode());`,
    "byte order marks": `const b = new Uint8Array([0xef, 0xbb, 0xbf, 0x61]); return [new TextDecoder().decode(b).length, new TextDecoder("utf-8", { ignoreBOM: true }).decode(b).length, new TextDecoder("utf-16le").decode(new Uint8Array([0xff, 0xfe, 0x61, 0])).length];`,
    "a mark split over chunks": `const d = new TextDecoder(); return [d.decode(new Uint8Array([0xef]), { stream: true }), d.decode(new Uint8Array([0xbb, 0xbf]), { stream: true }), d.decode(new Uint8Array([0x61]))];`,
    "every split of a text": `const b = new TextEncoder().encode("aé€😀\\u{10ffff}z"); const bad = []; for (let i = 0; i <= b.length; i++) for (let j = i; j <= b.length; j++) { const d = new TextDecoder(); const t = d.decode(b.subarray(0, i), { stream: true }) + d.decode(b.subarray(i, j), { stream: true }) + d.decode(b.subarray(j)); if (t !== "aé€😀\\u{10ffff}z") bad.push([i, j, t]); } return bad;`,
    "every split of malformed bytes": `const b = new Uint8Array([0xf0, 0x9f, 0x98, 0x41, 0xe0, 0x80, 0x80, 0xed, 0xa0, 0x80, 0xf4, 0x90, 0x80, 0x80, 0xc0, 0xaf, 0xfe, 0x61, 0xe2, 0x82]); const all = new Set(); for (let i = 0; i <= b.length; i++) { const d = new TextDecoder(); all.add(d.decode(b.subarray(0, i), { stream: true }) + d.decode(b.subarray(i))); } return [...all];`,
    "long text": `const t = "0123456789äöü€😀".repeat(1000); return [new TextDecoder().decode(new TextEncoder().encode(t)) === t, new TextEncoder().encode(t).length];`,
    "no argument, buffers and views": `const d = new TextDecoder(); return [d.decode(), d.decode(new ArrayBuffer(0)), d.decode(new DataView(new Uint8Array([97, 98, 99]).buffer, 1, 1)), await caught(() => d.decode("x"))];`,
  });
});

describe("TextEncoder", () => {
  conformance({
    encodes: `const e = new TextEncoder(); return [e.encoding, [...e.encode("aé€😀\\ud800")], [...e.encode()], [...e.encode(undefined)], [...e.encode(null)]];`,
    "encodeInto writes whole characters": `const out = []; for (let room = 0; room < 12; room++) { const d = new Uint8Array(room); const r = new TextEncoder().encodeInto("aé€😀z", d); out.push([r.read, r.written, [...d]]); } return out;`,
    "encodeInto with lone surrogates": `const d = new Uint8Array(9); const r = new TextEncoder().encodeInto("a\\ud800\\udc00\\udc00b\\ud800", d); return [r, [...d]];`,
    "encodeInto refuses other arrays": `return caught(() => new TextEncoder().encodeInto("a", [1]));`,
  });
});

describe("TextEncoderStream and TextDecoderStream", () => {
  conformance({
    "there and back": `const s = new ReadableStream({ start(c) { for (const p of ["a", "é\\ud83d", "\\ude00", "z\\ud800"]) c.enqueue(p); c.close(); } }); let t = ""; for await (const p of s.pipeThrough(new TextEncoderStream()).pipeThrough(new TextDecoderStream())) t += p; return t;`,
    "characters split over chunks": `const b = new TextEncoder().encode("€😀"); const s = new ReadableStream({ start(c) { for (const x of b) c.enqueue(new Uint8Array([x])); c.close(); } }); let t = ""; for await (const p of s.pipeThrough(new TextDecoderStream())) t += p; return t;`,
    "fatal streams fail": `const s = new ReadableStream({ start(c) { c.enqueue(new Uint8Array([0xff])); c.close(); } }); return caught(async () => { for await (const _ of s.pipeThrough(new TextDecoderStream("utf-8", { fatal: true }))); });`,
    attributes: `const d = new TextDecoderStream("latin1", { fatal: true }); return [d.encoding, d.fatal, d.ignoreBOM, new TextEncoderStream().encoding];`,
  });
});

describe("atob and btoa", () => {
  conformance({
    "there and back": `let all = ""; for (let i = 0; i < 256; i++) all += String.fromCharCode(i); return [btoa(all), atob(btoa(all)) === all, btoa(""), btoa(null), btoa("é")];`,
    "atob is forgiving as the standard says": `const out = []; for (const t of ["YQ==", "YQ", " Y Q = = ", "YWI=", "YWI", "YR==", "", "abcd\\n"]) out.push(atob(t)); return out;`,
    "atob refuses": `const out = []; for (const t of ["Y", "Y=", "YQ=", "YQ===", "Y*==", "=", "YQ==a", "YW=I", "ab=c"]) out.push(await caught(() => atob(t))); return out;`,
    "btoa refuses what is not Latin-1": `return [await caught(() => btoa("☃")), await caught(() => btoa())];`,
  });
});
