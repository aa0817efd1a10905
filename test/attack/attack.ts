import type { Answer, Call } from "../harness/http.ts";
import type { Ground, RunRecord } from "./ground.ts";

/** How a run of a hostile program may end (decided §7.3); `unsaved` is a program that the build refuses, which then never runs. */
export type AttackOutcome =
  | "ok"
  | "error"
  | "timeout"
  | "cpu-exceeded"
  | "memory-exceeded"
  | "response-too-large"
  | "client-gone"
  | "refused"
  | "unsaved";

/** Everything that was seen of one attack. */
export interface Sight {
  /** The answer, or null when the connection broke. */
  answer: Answer | null;
  run: RunRecord | null;
  /** The run's log lines, read only by attacks that ask for them. */
  lines(): Promise<{ level: string; text: string }[]>;
  ground: Ground;
}

/** A hostile program and how it must end. */
export interface Attack {
  name: string;
  /** The handler: a function expression of `(request, ctx)`. It serves every path but `/ok`. */
  program: string | ((ground: Ground) => string);
  /** Statements at the top of its module. */
  top?: string;
  /** What the caller sends instead of a plain GET. */
  request?: Partial<Omit<Call, "host">>;
  /** Another way to call, for callers who misbehave. Answers null when the connection broke. */
  send?(ground: Ground): Promise<Answer | null>;
  /** The outcome it must have; of several, any one is right. */
  outcome: AttackOutcome | readonly AttackOutcome[];
  /** The status the caller must see where the outcome does not tell it; null is a broken connection. */
  status?: number | null | readonly (number | null)[];
  /** The program leaves its own module or language broken: it serves again with its next version. */
  breaksItself?: boolean;
  /** What must hold beside the outcome. */
  expect?(sight: Sight): void | Promise<void>;
}

/** Statuses of callers by outcome (decided §7.4). */
const statusOf: Record<AttackOutcome, number> = {
  ok: 200,
  error: 500,
  timeout: 504,
  "cpu-exceeded": 503,
  "memory-exceeded": 503,
  "response-too-large": 502,
  "client-gone": 499,
  refused: 413,
  unsaved: 422,
};

/** The statuses an attack may be answered with, given how it ended. */
export function expectedStatuses({ status }: Attack, outcome: AttackOutcome): readonly (number | null)[] {
  if (status === undefined) return [statusOf[outcome]];
  return typeof status === "object" && status !== null ? status : [status];
}

/** The main file of the kap that runs an attack. `/ok` keeps to what it took before the attack could touch it. */
export function mainFile(attack: Attack, ground: Ground): string {
  const program = typeof attack.program === "function" ? attack.program(ground) : attack.program;
  return `import { db, store, secrets } from "kap";
const KeptURL = URL, KeptResponse = Response;
void [db, store, secrets];
${attack.top ?? ""}
const attack = ${program};
export default (request, ctx) => (new KeptURL(request.url).pathname === "/ok" ? new KeptResponse("ok") : attack(request, ctx));
`;
}

/** What happened to each expression that `attempts` tried. */
export function happened(answer: Answer | null): [expression: string, what: string][] {
  return Object.entries(JSON.parse(answer?.text ?? "{}") as Record<string, string>);
}

/**
 * A program that tries each of some expressions and answers `{[expression]: what happened}`: `"threw NAME CODE: MESSAGE"` or `"gave JSON"`.
 * Promises are waited for.
 */
export function attempts(expressions: readonly string[]): string {
  return `async (request, ctx) => {
  const happened = {};
  const attempt = async (name, action) => {
    try {
      const value = await action();
      happened[name] = "gave " + (typeof value === "function" ? "function" : JSON.stringify(value));
    } catch (error) {
      happened[name] = "threw " + error?.name + " " + (error?.code ?? "-") + ": " + error?.message;
    }
  };
${expressions.map((expression) => `  await attempt(${JSON.stringify(expression)}, () => (${expression}));`).join("\n")}
  return new KeptResponse(JSON.stringify(happened));
}`;
}
