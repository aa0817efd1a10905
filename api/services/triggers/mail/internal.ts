import { z } from "zod";
import { parseJson, readBody } from "../../../http/body.ts";
import { refuse } from "../../../http/refusal.ts";
import type { InternalRoute } from "../../../internal/internal-route.ts";
import { mailBytes } from "../trigger.ts";
import { acceptMail } from "./accept.ts";
import { type Envelope, envelopeSchema } from "./envelope.ts";
import { findInbox } from "./recipient.ts";

const question = z.object({
  address: z.string().max(1_000),
  envelope_from: z.string().max(1_000),
  size: z.int().min(0).optional(),
  remote_address: z.string().max(100),
});

/** What mail ingest asks: whether an address takes mail, and to store a message durably before it says 250. Refusals are answers: `{code, message}`. */
export const internalRoutes: InternalRoute[] = [
  {
    method: "POST",
    path: "/internal/mail/recipients",
    token: "ingest",
    async handler({ deps, request }) {
      const asked = question.safeParse(parseJson(await readBody(request, 16_384)));
      if (!asked.success) throw refuse("VALIDATION_FAILED", `the question is not one of mail ingest: ${asked.error.message}`);
      if ((asked.data.size ?? 0) > mailBytes)
        return { status: 200, body: { code: 552, message: `The mail is larger than ${mailBytes} bytes.` } };
      const inbox = await findInbox(deps, asked.data.address);
      return { status: 200, body: "code" in inbox ? inbox : { kap_id: inbox.kap_id } };
    },
  },
  {
    method: "POST",
    path: "/internal/mail/messages",
    token: "ingest",
    handler: async ({ deps, request }) => ({
      status: 200,
      body: await acceptMail(deps, readEnvelope(request.headers["x-kapstone-envelope"]), request),
    }),
  },
];

function readEnvelope(header: string | string[] | undefined): Envelope {
  if (typeof header !== "string") throw refuse("BAD_REQUEST", "the header x-kapstone-envelope is missing");
  const envelope = envelopeSchema.safeParse(parseJson(Buffer.from(header, "base64url")));
  if (!envelope.success) throw refuse("VALIDATION_FAILED", `the envelope is not one: ${envelope.error.message}`);
  return envelope.data;
}
