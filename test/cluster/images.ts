const registry = process.env.KAPSTONE_TEST_REGISTRY ?? process.env.REGISTRY ?? "localhost:5000";
const tag = process.env.KAPSTONE_TEST_TAG ?? "dev";

/**
 * The images under test, as the cluster's nodes name them: `{KAPSTONE_TEST_REGISTRY}/kapstone/{api,operator,runtime,mail-ingest}:{KAPSTONE_TEST_TAG}`.
 * `.ci/cluster-images` makes them, and `…/api:{KAPSTONE_TEST_TAG}-next`, the API of a later release with one migration more.
 */
export const images = {
  registry,
  tag,
  nextTag: `${tag}-next`,
  of: (name: "api" | "operator" | "runtime" | "mail-ingest"): string => `${registry}/kapstone/${name}:${tag}`,
};
