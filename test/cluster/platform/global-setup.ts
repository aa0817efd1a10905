import { randomBytes } from "node:crypto";
import type { TestProject } from "vitest/node";
import { kubectl } from "../namespace.ts";
import { uninstall } from "./release.ts";

/**
 * Names the namespace of the one release that the files of this folder share, and takes it back at the end, which must leave nothing behind.
 * With KAPSTONE_TEST_NAMESPACE it is that namespace, and stays: for work on the tests.
 */
export default function setup(project: TestProject): () => Promise<void> {
  const kept = process.env.KAPSTONE_TEST_NAMESPACE;
  const namespace = kept ?? `k-test-${randomBytes(4).toString("hex")}`;
  project.provide("releaseNamespace", namespace);
  return async () => {
    if (kept !== undefined || (await kubectl("get", "namespace", namespace, "--ignore-not-found", "-o", "name")) === "") return;
    await uninstall(namespace);
  };
}
