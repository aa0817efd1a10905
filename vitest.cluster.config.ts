import { defineConfig } from "vitest/config";

/** Tests on a real Kubernetes, that of KUBECONFIG. One file at a time: they share its node with what they measure. */
export default defineConfig({
  test: {
    include: ["test/cluster/**/*.test.ts"],
    globalSetup: ["test/harness/global-setup.ts", "test/cluster/platform/global-setup.ts"],
    pool: "forks",
    fileParallelism: false,
    testTimeout: 120_000,
    hookTimeout: 120_000,
    teardownTimeout: 600_000,
  },
});
