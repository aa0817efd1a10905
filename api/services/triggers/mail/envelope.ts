import { z } from "zod";

/** The envelope of a mail, as ingest heard it. */
export const envelopeSchema = z.object({
  from: z.string().max(1_000),
  recipients: z
    .array(z.object({ address: z.string().max(1_000), kap_id: z.uuid() }))
    .min(1)
    .max(1_000),
  remote_address: z.string().max(100),
  helo: z.string().max(1_000),
  received_at: z.iso.datetime({ offset: true }),
  tls: z.string().max(200).nullable(),
});
export type Envelope = z.infer<typeof envelopeSchema>;

/** What became of a mail for one of its recipients. */
export interface Accepted {
  address: string;
  kap_id: string;
  run_id: string;
  /** The same mail had come within 24 hours: this is the run it has already. */
  duplicate: boolean;
}
