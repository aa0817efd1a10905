import { Refusal } from "../http/refusal.ts";

const words: Record<string, { code: string; message: string }> = {
  error: { code: "RUN_FAILED", message: "the kap failed while it handled this call: its owner finds the error in the run" },
  "no-handler": {
    code: "NO_HANDLER",
    message: "the kap has no handler for this kind of call: its file must export a default function or an object with fetch",
  },
  timeout: {
    code: "RUN_TIMEOUT",
    message: "the kap took longer than a call may take: its owner can make it answer sooner and go on in waitUntil, or use a schedule",
  },
  "cpu-exceeded": { code: "RUN_CPU_EXCEEDED", message: "the kap used more CPU time than a call may use" },
  "memory-exceeded": { code: "RUN_MEMORY_EXCEEDED", message: "the kap used more memory than it may use; the next call starts afresh" },
  "response-too-large": {
    code: "RESPONSE_TOO_LARGE",
    message: "the kap's answer is over the limit: its owner can answer less, or store it and answer its address",
  },
  crashed: {
    code: "RUN_CRASHED",
    message: "the kap's runtime ended during the call; it may have run in part: look at the run, then call again",
  },
  refused: { code: "KAP_BUSY", message: "the kap has as many calls running and waiting as it may have: try again in a moment" },
  "body-too-large": { code: "PAYLOAD_TOO_LARGE", message: "the body of a call is over its limit: send less" },
};

/** The platform's words for a failed run (decided §7.4): the program's own message is shown to members only. */
export function failureRefusal(
  failure: { outcome: string; status: number; detail: string; retryAfter: string | null },
  isMember: boolean,
): Refusal {
  const known = words[failure.status === 501 ? "no-handler" : failure.status === 413 ? "body-too-large" : failure.outcome] ?? words.error;
  return new Refusal(failure.status, known?.code ?? "RUN_FAILED", known?.message ?? "the kap failed", {
    details: isMember ? { outcome: failure.outcome, detail: failure.detail } : { outcome: failure.outcome },
    headers: failure.status === 503 ? { "retry-after": failure.retryAfter ?? "1" } : {},
  });
}
