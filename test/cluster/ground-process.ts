import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { until } from "../harness/wait.ts";

const root = new URL("../../", import.meta.url).pathname;

/** A process of the platform on this machine that talks to the cluster's API server. */
export interface GroundProcess {
  child: ChildProcess;
  /** What it has logged. */
  lines: Record<string, unknown>[];
  /** SIGTERM; answers the exit code. */
  stop(): Promise<number | null>;
}

/**
 * Starts a process from its entry and waits until it logs the message `upMessage`; answers that line too. Fails with what it wrote to standard error when it
 * ends before.
 */
export async function startGroundProcess(
  entry: string,
  upMessage: string,
  env: Record<string, string>,
): Promise<{ process: GroundProcess; up: Record<string, unknown> }> {
  const child = spawn(process.execPath, [entry], {
    cwd: root,
    env: { PATH: process.env.PATH ?? "", HOME: process.env.HOME ?? "", KUBECONFIG: process.env.KUBECONFIG ?? "", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const lines: Record<string, unknown>[] = [];
  let errors = "";
  child.stderr.on("data", (chunk) => {
    errors += chunk;
  });
  createInterface(child.stdout).on("line", (line) => {
    if (line.startsWith("{")) lines.push(JSON.parse(line) as Record<string, unknown>); // libraries have their own words
  });
  const up = await until(
    () => {
      if (child.exitCode !== null) throw new Error(`${entry} ended with ${child.exitCode}: ${errors}`);
      return lines.find((line) => line.msg === upMessage);
    },
    { timeoutMs: 60_000, what: upMessage },
  );
  const stop = async (): Promise<number | null> => {
    if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
    child.kill("SIGCONT"); // one that a test holds does not hear SIGTERM
    child.kill("SIGTERM");
    await once(child, "exit");
    return child.exitCode;
  };
  return { process: { child, lines, stop }, up };
}
