// biome-ignore-all lint/complexity/noArguments: the standards tell a missing argument from an undefined one
/** atob and btoa (HTML §8.3) over V8's own base64. */
import { DOMException } from "./dom-exception.ts";

const invalid = (message: string) => new DOMException(message, "InvalidCharacterError");
const { fromBase64 } = Uint8Array;
const { toBase64 } = Uint8Array.prototype;

export function btoa(data: string): string {
  if (arguments.length === 0) throw new TypeError("btoa needs a string.");
  const text = `${data}`;
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code > 0xff) throw invalid("The string holds characters outside of Latin-1.");
    bytes[index] = code;
  }
  return toBase64.call(bytes);
}

export function atob(data: string): string {
  if (arguments.length === 0) throw new TypeError("atob needs a string.");
  let bytes: Uint8Array;
  try {
    bytes = fromBase64.call(Uint8Array, `${data}`);
  } catch {
    throw invalid("The string is not correctly encoded base64.");
  }
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return text;
}
