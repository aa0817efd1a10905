import { Readable } from "node:stream";
import { Agent, request } from "undici";
import { z } from "zod";
import type { MailLimits } from "./limits.ts";
import { MailRefusal } from "./mail-refusal.ts";

/** Whom a message is from and for, as the API hears it. Times are RFC 3339. */
export interface Envelope {
  /** Empty for bounces. */
  from: string;
  recipients: { address: string; kap_id: string }[];
  remote_address: string;
  helo: string;
  received_at: string;
  /** The cipher of the connection, null for one in the clear. */
  tls: string | null;
}

export interface RecipientQuestion {
  address: string;
  envelope_from: string;
  /** As the sender announced it with SIZE. */
  size?: number;
  remote_address: string;
}

/** The mail routes of the API's internal listener: this process holds no database credentials. */
export interface MailApi {
  /** The kap behind an address. Throws the `MailRefusal` that the API answers, or 451 when it does not. */
  recipient(question: RecipientQuestion): Promise<string>;
  /**
   * Hands a message over. Fulfils when it is stored durably for every recipient. Throws the `MailRefusal` that the API answers, 451 when it does not,
   * and what `content` throws; in each case nothing of it is kept.
   */
  message(envelope: Envelope, content: AsyncIterable<Buffer>, signal: AbortSignal): Promise<void>;
  /** Throws with the cause when the API cannot take mail. */
  check(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

const refusalAnswer = z.object({ code: z.number().int().min(400).max(599), message: z.string().max(1_000) });
const recipientAnswer = z.union([z.object({ kap_id: z.string().min(1) }), refusalAnswer]);
const messageAnswer = z.union([z.object({ accepted: z.array(z.unknown()) }), refusalAnswer]);
const maxAnswerBytes = 65_536;

export function connectMailApi(url: string, token: string, limits: Pick<MailLimits, "recipientMs" | "storeMs">): MailApi {
  // A message comes as slowly as its sender sends: deadlines begin where the sender's part ends.
  const dispatcher = new Agent({ connect: { timeout: 5_000 }, headersTimeout: 0, bodyTimeout: 30_000 });
  const authorization = `Bearer ${token}`;

  return {
    async recipient(question) {
      const answer = await later("the address cannot be looked up", async () => {
        const response = await request(new URL("/internal/mail/recipients", url), {
          dispatcher,
          method: "POST",
          headers: { authorization, "content-type": "application/json" },
          body: JSON.stringify(question),
          signal: AbortSignal.timeout(limits.recipientMs),
        });
        return recipientAnswer.parse(await json(response.body));
      });
      if ("kap_id" in answer) return answer.kap_id;
      throw new MailRefusal(answer.code, answer.message);
    },
    async message(envelope, content, signal) {
      const deadline = new AbortController();
      let timer: NodeJS.Timeout | undefined;
      let broken: { cause: unknown } | undefined;
      async function* body(): AsyncGenerator<Buffer> {
        try {
          yield* content;
        } catch (cause) {
          broken = { cause };
          throw cause;
        }
        timer = setTimeout(() => deadline.abort(new Error(`not stored within ${limits.storeMs} ms`)), limits.storeMs);
      }
      try {
        const answer = await later("the message cannot be stored", async () => {
          const response = await request(new URL("/internal/mail/messages", url), {
            dispatcher,
            method: "POST",
            headers: { authorization, "content-type": "message/rfc822", "x-kapstone-envelope": envelopeHeader(envelope) },
            body: Readable.from(body(), { objectMode: false, highWaterMark: 65_536 }),
            signal: AbortSignal.any([signal, deadline.signal]),
          });
          return messageAnswer.parse(await json(response.body));
        });
        if ("code" in answer) throw new MailRefusal(answer.code, answer.message);
      } catch (error) {
        throw broken ? broken.cause : error;
      } finally {
        clearTimeout(timer);
      }
    },
    async check(signal) {
      const response = await request(new URL("/readyz", url), { dispatcher, signal });
      await response.body.dump();
      if (response.statusCode !== 200) throw new Error(`the API answers ${response.statusCode} to /readyz`);
    },
    close: () => dispatcher.destroy(),
  };
}

/** The envelope as a header value. Node refuses requests with more than 16 KiB of headers: see `maxEnvelopeHeader`. */
export function envelopeHeader(envelope: Envelope): string {
  return Buffer.from(JSON.stringify(envelope)).toString("base64url");
}
export const maxEnvelopeHeader = 12_288;

async function json(body: Readable): Promise<unknown> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxAnswerBytes) throw new Error(`the API's answer has more than ${maxAnswerBytes} bytes`);
    chunks.push(chunk);
  }
  return JSON.parse(Buffer.concat(chunks).toString());
}

/** Whatever keeps the API from answering is no fault of the sender: 451, try again. */
async function later<T>(what: string, ask: () => Promise<T>): Promise<T> {
  return await ask().catch((cause: unknown) => {
    throw new MailRefusal(451, `At the moment ${what}; please try again later.`, { cause });
  });
}
