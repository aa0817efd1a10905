import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type pg from "pg";

const endMs = 2_000;

/** How often a connection that listens is asked for a sign of life, and how long it has for it, in milliseconds. */
export interface Pulse {
  askMs: number;
  answerMs: number;
}

/** As often as a connection is to be asked that has nothing to say for hours. */
export const steadyPulse: Pulse = { askMs: 20_000, answerMs: 15_000 };

/** A socket that breaks when nothing has come or gone on it for so long: who waits for a statement would wait for ever on a server whose packets no longer arrive. */
export function impatientSocket(silenceMs: number): Socket {
  const socket = new Socket();
  return socket.setTimeout(silenceMs, () => {
    socket.destroy(new Error(`the database has said nothing for ${silenceMs / 1_000} seconds: its connection is given up`));
  });
}

/** Breaks a connection off without a word to the server, which may not be reached any more: whoever has it hears `end`, and before it `error` if there is a reason. */
function cutConnection(client: pg.ClientBase, why?: Error): void {
  (client as pg.ClientBase & { connection: { stream: Duplex } }).connection.stream.destroy(why);
}

/**
 * Watches a connection that only listens: a network that drops its packets would leave it listening for ever. Every 20 s the server is asked something, and a
 * connection on which no answer comes within 15 s is cut, so that its holder makes another. Ends with the connection.
 */
export function watchConnection(client: pg.ClientBase, pulse: Pulse = steadyPulse): void {
  let deadline: NodeJS.Timeout | undefined;
  const stop = (): void => {
    clearInterval(timer);
    clearTimeout(deadline);
  };
  const giveUp = (why: Error): void => {
    stop();
    cutConnection(client, why);
  };
  const ask = (): void => {
    if (deadline !== undefined) return; // the last question is still open
    deadline = setTimeout(
      () => giveUp(new Error(`the database has not answered for ${pulse.answerMs / 1_000} seconds: its connection is given up`)),
      pulse.answerMs,
    );
    client.query("select 1").then(() => {
      clearTimeout(deadline);
      deadline = undefined;
    }, giveUp);
  };
  const timer = setInterval(ask, pulse.askMs);
  client.once("end", stop);
}

/** Takes leave of the server; of one that does not answer for two seconds, without its consent. */
export async function endConnection(client: pg.Client): Promise<void> {
  const timer = setTimeout(() => cutConnection(client), endMs);
  try {
    await client.end();
  } finally {
    clearTimeout(timer);
  }
}
