/** UTF-8 both ways: short ASCII in place, all else by the host, whose native codec is far faster than a loop in here. */
import { syncBytes, syncText } from "./host.ts";
import {
  bufferByteLength,
  bufferSlice,
  bytesSet,
  bytesSubarray,
  charCodeAt,
  dataViewBuffer,
  dataViewByteLength,
  dataViewOffset,
  fromCharCode,
  isArrayBuffer,
  isView,
  reflectApply,
  U8,
  viewBuffer,
  viewByteLength,
  viewOffset,
  viewTag,
} from "./primordials.ts";

/** Up to this many characters a loop beats a crossing to the host (about 2 µs). */
const shortText = 96;

/** Encodes a string; lone surrogates become U+FFFD. */
export function encodeUtf8(text: string): Uint8Array<ArrayBuffer> {
  const { length } = text;
  if (length <= shortText) {
    const bytes = new U8(length);
    let index = 0;
    for (; index < length; index++) {
      const code = charCodeAt(text, index);
      if (code > 0x7f) break;
      bytes[index] = code;
    }
    if (index === length) return bytes;
  }
  return new U8(syncBytes("utf8.encode", text));
}

/** Decodes bytes with replacement of what is malformed. The byte order mark stays. */
export function decodeUtf8(bytes: Uint8Array<ArrayBuffer>): string {
  const length = viewByteLength(bytes);
  if (length === 0) return "";
  if (length <= shortText) {
    let index = 0;
    while (index < length && (bytes[index] as number) < 0x80) index++;
    if (index === length) return reflectApply(fromCharCode, undefined, bytes as unknown as number[]) as string;
  }
  return syncText("utf8.decode", "", exactBuffer(bytes));
}

/** `decodeUtf8` without a leading byte order mark, as `text()` and `json()` want it. */
export function decodeText(bytes: Uint8Array<ArrayBuffer>): string {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? decodeUtf8(bytesSubarray(bytes, 3)) : decodeUtf8(bytes);
}

/** An ArrayBuffer of exactly these bytes: the view's own when it covers it, else a copy. For crossing the bridge, which copies again. */
export function exactBuffer(bytes: Uint8Array<ArrayBuffer>): ArrayBuffer {
  const buffer = viewBuffer(bytes);
  const offset = viewOffset(bytes);
  const length = viewByteLength(bytes);
  return offset === 0 && length === bufferByteLength(buffer) ? buffer : bufferSlice(buffer, offset, offset + length);
}

/** A Uint8Array over the bytes of any BufferSource, without copying; null for anything else. */
export function viewOf(value: unknown): Uint8Array<ArrayBuffer> | null {
  if (isView(value)) {
    return viewTag(value) === undefined
      ? new U8(dataViewBuffer(value), dataViewOffset(value), dataViewByteLength(value))
      : new U8(viewBuffer(value), viewOffset(value), viewByteLength(value));
  }
  return isArrayBuffer(value) ? new U8(value) : null;
}

/** A copy of the bytes of any BufferSource; null for anything else. */
export function copyOf(value: unknown): Uint8Array<ArrayBuffer> | null {
  const view = viewOf(value);
  if (view === null) return null;
  const start = viewOffset(view);
  return new U8(bufferSlice(viewBuffer(view), start, start + viewByteLength(view)));
}

/** One array of several, in order. */
export function concatBytes(parts: readonly Uint8Array<ArrayBuffer>[], total: number): Uint8Array<ArrayBuffer> {
  const first = parts[0];
  if (parts.length === 1 && first !== undefined) return first;
  const all = new U8(total);
  let at = 0;
  for (let index = 0; index < parts.length; index++) {
    const part = parts[index] as Uint8Array<ArrayBuffer>;
    bytesSet(all, part, at);
    at += viewByteLength(part);
  }
  return all;
}
