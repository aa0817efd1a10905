import type { FileHandle } from "node:fs/promises";

/** What an object's file says of the object. Times are milliseconds since 1970. */
export interface Footer {
  key: string;
  size_bytes: number;
  etag: string;
  content_type: string;
  modified_at: number;
}

/*
 * An object is one file: its content, then this footer, then eight bytes (the footer's length and a mark). One file, so that one rename switches content and
 * metadata together; at the end, because size and digest are known only when the content has streamed through.
 */
const mark = 0x6b61_7031; // "kap1"
const tailBytes = 8;
/** A footer holds a key of 1,024 bytes (at most six times that in JSON) and a content type: nearly all are read with one call. */
const firstReadBytes = 2_048;

/** The bytes that follow the content. */
export function encodeFooter(footer: Footer): Buffer {
  const json = Buffer.from(JSON.stringify(footer));
  const tail = Buffer.alloc(tailBytes);
  tail.writeUInt32BE(json.length, 0);
  tail.writeUInt32BE(mark, 4);
  return Buffer.concat([json, tail]);
}

/** Reads the footer of an open object file. Throws when the file is not a whole object. */
export async function readFooter(file: FileHandle, path: string): Promise<Footer> {
  const { size } = await file.stat();
  let tail = await readEnd(file, size, firstReadBytes);
  if (tail.length < tailBytes || tail.readUInt32BE(tail.length - 4) !== mark) throw damaged(path);
  const needed = tail.readUInt32BE(tail.length - tailBytes) + tailBytes;
  if (needed > size) throw damaged(path);
  if (needed > tail.length) tail = await readEnd(file, size, needed);
  const footer = JSON.parse(tail.subarray(tail.length - needed, tail.length - tailBytes).toString()) as Footer;
  if (footer.size_bytes + needed !== size) throw damaged(path);
  return footer;
}

async function readEnd(file: FileHandle, size: number, bytes: number): Promise<Buffer> {
  const length = Math.min(bytes, size);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, size - length);
  return buffer.subarray(0, bytesRead);
}

function damaged(path: string): Error {
  return new Error(`The object file ${path} is damaged: restore it from a backup, or delete it.`);
}
