import type { IncomingMessage } from "node:http";
import { digestSecret } from "#platform/secrets.ts";
import type { Deps } from "../deps.ts";
import { clientAddress } from "../http/hosts.ts";
import { checkRate, type RateState, rateHeaders } from "../http/rate-limit.ts";
import type { Refusal } from "../http/refusal.ts";
import type { CallCredential } from "./call-credential.ts";

/** Counts a call against its limit. Each throws 429 when that is spent. */
export interface CallCount {
  /** Refuses an address whose minute is known to be spent, before anything is looked up for it. */
  checkAddress(): void;
  byAddress(): Promise<void>;
  byCredential(bucket: string): Promise<void>;
  /** What a refused call is answered: one whose credential did not hold counts by its address too, and past that limit hears so. */
  refused(refusal: Refusal): Promise<Refusal>;
  /** What the answer says of the limit, whatever it is. */
  headers(): Record<string, string>;
}

/**
 * Calls of a kap are counted by their credential, whatever its kind; anonymous ones, and those whose credential did not hold, by their address (decided §3): so
 * people behind one address do not use up each other's calls, and nobody tries credentials faster than the address may call.
 */
export function countCalls(deps: Deps, request: IncomingMessage): CallCount {
  const { callsPerMinute, requestsPerMinute, trustedProxies } = deps.config;
  const addressBucket = `call-address:${clientAddress(request, trustedProxies)}`;
  const take = async (bucket: string, limit: number, what: string): Promise<void> => {
    counted = await deps.limiter.take(bucket, limit);
    checkRate(counted, what);
  };
  let counted: RateState | null = null;
  let isCounted = false;
  const byAddress = (): Promise<void> => {
    isCounted = true;
    return take(addressBucket, requestsPerMinute, "calls a minute from this address");
  };
  return {
    checkAddress() {
      const spent = deps.limiter.spent(addressBucket);
      if (spent) checkRate(spent, "failed or anonymous calls a minute from this address");
    },
    byAddress,
    byCredential: (bucket) => take(`call:${bucket}`, callsPerMinute, "calls a minute with this credential"),
    async refused(refusal) {
      if (refusal.status === 401 && !isCounted) await byAddress();
      return refusal;
    },
    headers: () => (counted ? rateHeaders(counted) : {}),
  };
}

/** The bucket of a call that proved who it is from (`proof`) by a session, the host's cookie or a signature; each secret signs for itself. */
export function bucketOfProof(credential: CallCredential, host: string, proof: string): string {
  if (credential.session) return credential.session.digest.toString("base64url");
  if (credential.cookie !== null) return digestSecret(credential.cookie).toString("base64url");
  return `${host} ${proof}`;
}
