import type { Socket } from "node:net";

/**
 * Frames between supervisor and child over their socket pair. One frame is
 * `u32 length of the rest, u8 kind, u32 a, u32 b, u32 length of text, text (UTF-8), bytes`, little endian.
 * `a` and `b` carry the numbers each kind needs, so the common ones (a host call and its answer) need no JSON envelope.
 */
export const frameKind = {
  /** to the child: text = limits as JSON known before a claim, bytes = the guest kit's script */
  boot: 1,
  /** to the child: a = revision, text = `LoadHead` as JSON, bytes = bundle, map and code cache (when it is fresh) */
  load: 2,
  /** to the child: accept on the listening socket from now on */
  accept: 3,
  /** to the child: stop accepting, let runs end, answer `drained` */
  drain: 4,
  /** to the child: a = call id, b = 1 when it succeeded, text and bytes = the answer */
  settle: 5,
  /** to the child, answered by `pong` with the same a */
  ping: 6,
  /** to the child: a = revision that could not be had, text = why */
  unavailable: 7,
  /** to the child: another serves from now on; take no new connections, serve the open ones to their next answer, then say `drained` */
  retire: 8,
  /** from the child: isolate and web API are warm */
  ready: 20,
  /** from the child: a = revision that is loaded, b = what became of its code cache (0 none, 1 used, 2 refused) */
  loaded: 21,
  /** from the child: a = call id, b = run key, text = `op NUL remaining wall ms NUL JSON`, bytes */
  call: 22,
  /** from the child: text = `Ended` as JSON: runs that ended and log lines */
  ended: 23,
  pong: 24,
  /** from the child: a = the revision a request asked for */
  refresh: 25,
  /** from the child: b = run key whose host calls are to be cancelled and whose accounts closed */
  forget: 26,
  /** from the child: the isolate is lost (text = why); every run has been answered; kill me and use the spare */
  lost: 27,
  drained: 28,
  /** from the child: the listening socket is its own now */
  accepting: 29,
  /** from the child: b = run key, text = run id: a dry run, before any call of it */
  dry: 30,
} as const;

const headBytes = 17;
/** Larger than the largest legal frame (a store object of 30 MiB and its head). */
const maxFrameBytes = 64 * 1024 * 1024;

/** Writes one frame. The text and the bytes are copied: the caller may reuse its buffers. */
export function writeFrame(socket: Socket, kind: number, a: number, b: number, text = "", bytes?: Uint8Array | undefined): boolean {
  const textBytes = text === "" ? 0 : Buffer.byteLength(text);
  const frame = Buffer.allocUnsafe(headBytes + textBytes + (bytes?.byteLength ?? 0));
  frame.writeUInt32LE(frame.length - 4, 0);
  frame[4] = kind;
  frame.writeUInt32LE(a, 5);
  frame.writeUInt32LE(b, 9);
  frame.writeUInt32LE(textBytes, 13);
  if (textBytes > 0) frame.write(text, headBytes, "utf8");
  if (bytes) frame.set(bytes, headBytes + textBytes);
  return socket.write(frame);
}

/** `bytes` is a view that is only good during the call: copy what is kept. */
export type FrameListener = (kind: number, a: number, b: number, text: string, bytes: Buffer) => void;

/**
 * Cuts a byte stream into frames. Calls `listener` for each in order.
 * @throws Error when the peer announces a frame beyond the cap or lies about the length of its text: the peer is broken, end it
 */
export function readFrames(listener: FrameListener): (chunk: Buffer) => void {
  let held: Buffer[] = [];
  let heldBytes = 0;
  let wanted = headBytes;
  return (chunk) => {
    let data = chunk;
    if (heldBytes > 0) {
      held.push(chunk);
      heldBytes += chunk.length;
      if (heldBytes < wanted) return;
      data = Buffer.concat(held, heldBytes);
      held = [];
      heldBytes = 0;
    }
    let at = 0;
    wanted = headBytes;
    while (data.length - at >= headBytes) {
      const length = data.readUInt32LE(at);
      if (length > maxFrameBytes || length < headBytes - 4) throw new Error(`a frame of ${length} bytes is not one of ours`);
      if (data.length - at < length + 4) {
        wanted = length + 4;
        break;
      }
      const textBytes = data.readUInt32LE(at + 13);
      const textStart = at + headBytes;
      const end = at + 4 + length;
      if (textStart + textBytes > end) throw new Error("a frame's text is longer than the frame");
      const text = textBytes === 0 ? "" : data.toString("utf8", textStart, textStart + textBytes);
      listener(data[at + 4] ?? 0, data.readUInt32LE(at + 5), data.readUInt32LE(at + 9), text, data.subarray(textStart + textBytes, end));
      at = end;
    }
    if (at < data.length) {
      held = [at === 0 ? data : data.subarray(at)];
      heldBytes = data.length - at;
    }
  };
}
