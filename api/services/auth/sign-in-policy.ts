import { z } from "zod";

/** How members of an organisation sign in (decided §3, `GET /v1/auth/settings`), without the branding. Defaults are the contract's. */
export const sessionPolicy = z.strictObject({
  lifetime_hours: z.int().min(1).max(8_760).default(24),
  idle_timeout_minutes: z.int().min(1).max(525_600).nullable().default(null),
  lockout_threshold: z.int().min(1).max(100).default(5),
  lockout_minutes: z.int().min(1).max(10_080).default(15),
});
export const mfaPolicy = z.strictObject({ mode: z.enum(["optional", "enforced"]).default("optional") });
export const passwordPolicy = z.strictObject({
  min_length: z.int().min(8).max(128).default(15),
  uppercase: z.boolean().default(false),
  numbers: z.boolean().default(false),
  special: z.boolean().default(false),
});
const policy = z.object({
  session: sessionPolicy.prefault({}),
  mfa: mfaPolicy.prefault({}),
  password: passwordPolicy.prefault({}),
});

export type SignInPolicy = z.infer<typeof policy>;
export type PasswordPolicy = SignInPolicy["password"];

/** The policy of an organisation: what it set, over the defaults. */
export function policyOf(settings: unknown): SignInPolicy {
  return policy.parse(settings ?? {});
}

/**
 * What holds for an account that belongs to several organisations: of each rule the strictest. Otherwise the laxest organisation would decide
 * how often a password may be guessed, or how weak it may be, that opens the others too.
 */
export function strictestPolicy(
  policies: readonly SignInPolicy[],
): Pick<SignInPolicy, "password"> & { threshold: number; lockMinutes: number } {
  const all = policies.length > 0 ? policies : [policyOf({})];
  return {
    threshold: Math.min(...all.map(({ session }) => session.lockout_threshold)),
    lockMinutes: Math.max(...all.map(({ session }) => session.lockout_minutes)),
    password: {
      min_length: Math.max(...all.map(({ password }) => password.min_length)),
      uppercase: all.some(({ password }) => password.uppercase),
      numbers: all.some(({ password }) => password.numbers),
      special: all.some(({ password }) => password.special),
    },
  };
}
