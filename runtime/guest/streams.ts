/** The streams of the Web (web-streams-polyfill, the standard's reference implementation), and the kit's own kinds of source. */
export {
  ByteLengthQueuingStrategy,
  CountQueuingStrategy,
  ReadableByteStreamController,
  ReadableStream,
  ReadableStreamBYOBReader,
  ReadableStreamBYOBRequest,
  ReadableStreamDefaultController,
  ReadableStreamDefaultReader,
  TransformStream,
  TransformStreamDefaultController,
  WritableStream,
  WritableStreamDefaultController,
  WritableStreamDefaultWriter,
} from "web-streams-polyfill";

import { ReadableStream } from "web-streams-polyfill";

const streamState = (stream: object, name: string): unknown => (stream as Record<string, unknown>)[name];

/** True for a ReadableStream of this isolate. */
export const isReadableStream = (value: unknown): value is ReadableStream => value instanceof ReadableStream;

/** Whether a stream has been read from or cancelled (Streams "is disturbed"); the standard gives programs no way to ask. */
export const isDisturbed = (stream: ReadableStream): boolean => streamState(stream, "_disturbed") === true;
