import { setTimeout as delay } from "node:timers/promises";
import { isNotFound, type Kubernetes } from "#platform/kubernetes/client.ts";
import { type Controller, type ControllerOptions, startController } from "./controller.ts";
import { acquireLease, type LeaseOptions, leaseResource, type Term } from "./lease.ts";

export interface OperatorOptions extends ControllerOptions {
  kubernetes: Kubernetes;
  leaseName: string;
  leaseSeconds: number;
}

/** An operator: one of possibly several, of which one leads. */
export interface Operator {
  /** The controller while this operator leads. */
  controller(): Controller | undefined;
  stuck(): string[];
  /** Readiness: the API server answers for the lease. */
  checkKubernetes(signal: AbortSignal): Promise<void>;
  /** Finishes what is under way and hands the lease over. */
  stop(): Promise<void>;
}

const electionStuckMs = 120_000;

/** Takes part in the election, works while it leads, and takes part again when it has lost the lease. */
export function startOperator(options: OperatorOptions): Operator {
  const { kubernetes, log, identity } = options;
  const end = new AbortController();
  let controller: Controller | undefined;
  let lookedAt = performance.now();
  const lease: LeaseOptions = {
    name: options.leaseName,
    identity,
    durationSeconds: options.leaseSeconds,
    log,
    onLook() {
      lookedAt = performance.now();
    },
  };

  async function lead(term: Term): Promise<void> {
    log.info({ lease: options.leaseName, identity }, "this operator leads");
    const current = startController(options, term);
    controller = current;
    try {
      await new Promise<void>((resolve) => {
        term.signal.addEventListener("abort", () => resolve());
        end.signal.addEventListener("abort", () => resolve());
        if (term.signal.aborted || end.signal.aborted) resolve();
      });
      if (term.signal.aborted) log.warn({ why: String(term.signal.reason) }, "this operator does not lead any more");
      await current.stop();
    } finally {
      controller = undefined;
      await term.release();
    }
  }

  async function run(): Promise<void> {
    while (!end.signal.aborted) {
      try {
        await lead(await acquireLease(kubernetes, lease, end.signal));
      } catch (error) {
        if (end.signal.aborted) return;
        log.error({ err: error }, "the operator's term ended with an error; it takes part in the election again");
        await delay(1_000, undefined, { signal: end.signal }).catch(() => undefined);
      }
    }
  }
  const running = run();

  return {
    controller: () => controller,
    stuck() {
      if (controller) return controller.stuck();
      const ms = performance.now() - lookedAt;
      return ms > electionStuckMs ? [`the election has not moved for ${Math.round(ms / 1_000)} s`] : [];
    },
    async checkKubernetes(signal) {
      await kubernetes.get(leaseResource, options.leaseName, { signal, deadlineMs: 2_000 }).catch((error: unknown) => {
        if (!isNotFound(error)) throw error;
      });
    },
    async stop() {
      end.abort();
      await running;
    },
  };
}
