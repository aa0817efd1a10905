import { Secret, TOTP } from "otpauth";
import { until } from "../harness/wait.ts";
import { type Org, type ServiceApp, sender } from "./auth-app.ts";

/** The code of a secret, some 30-second steps from now. */
export const codeOf = (secret: string, steps = 0): string =>
  new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: Date.now() + steps * 30_000 });

type SignedIn = Pick<Org, "auth">;

/** Enrols a second factor with the code of the step before this one, so that the present and the next code are still good. */
export async function enrolSecondFactor(app: ServiceApp, person: SignedIn): Promise<{ secret: string; backup: string[] }> {
  const { secret } = (await sender(app)("POST", "/v1/auth/mfa/totp", person.auth)).json<{ secret: string }>();
  return { secret, backup: await confirmSecondFactor(app, person, secret) };
}

/** Confirms with the code of the step before this one; again, should this step have ended meanwhile. Returns the backup codes. */
export async function confirmSecondFactor(app: ServiceApp, person: SignedIn, secret: string): Promise<string[]> {
  const answer = await until(async () => {
    const confirmed = await sender(app)("POST", "/v1/auth/mfa/totp/confirm", person.auth, { code: codeOf(secret, -1) });
    return confirmed.status === 200 && confirmed;
  });
  return answer.json<{ backup_codes: string[] }>().backup_codes;
}
