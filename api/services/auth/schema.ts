import { z } from "zod";
import { id, timestamp } from "../../http/fields.ts";

/** An email address, made lowercase once it is known to be ASCII: letters of other scripts that fold to ASCII ones (the Kelvin sign) would name another's. */
export const emailText = z.string().trim().max(254).pipe(z.email()).pipe(z.string().toLowerCase());
/** A password as typed. What a new one must be is the organisation's policy; this only bounds the work. */
export const passwordText = z.string().min(1).max(1_024);
/** A TOTP code or a backup code; spaces are for people. */
export const codeText = z.string().min(6).max(40);
export const loginResponse = z
  .object({
    session_token: z.string().meta({ description: "`kses_…`; shown once" }),
    session_expires_at: timestamp,
    access_token: z.string().meta({ description: "RS256 JWT" }),
    access_token_expires_in: z.int().meta({ description: "seconds" }),
    role: z.string(),
    org_id: id,
    org_slug: z.string(),
    org_url: z.string().meta({ description: "The organisation's host" }),
    member_id: id,
    email: z.string(),
    name: z.string(),
    mfa_enrollment_required: z.boolean().optional().meta({
      description: "Present and true when the organisation enforces a second factor that is not enrolled yet: this session may only enrol",
    }),
  })
  .meta({ id: "LoginResponse" });
