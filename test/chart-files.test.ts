import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { createMetrics } from "#platform/metrics.ts";
import { requestTimes } from "../api/http/request-times.ts";
import { ingestMetrics } from "../mail-ingest/ingest-metrics.ts";
import { createOperatorMetrics } from "../operator/metrics.ts";
import { chartPage, describedValues } from "../scripts/document-chart.ts";

const chartFile = (name: string): string => readFileSync(new URL(`../charts/kapstone/${name}`, import.meta.url), "utf8");

test("the chart's README says what the comments of its values say", () => {
  expect(chartFile("README.md")).toBe(chartPage());
});

test("every value has a comment, and the schema knows exactly the values there are", () => {
  const schema = JSON.parse(chartFile("values.schema.json")) as Schema;
  const described = describedValues(chartFile("values.yaml")).map(({ path }) => path);
  expect(leaves(schema, schema.properties, described)).toEqual([...described].sort());
});

interface Property {
  properties?: Record<string, Property>;
  $ref?: string;
}
interface Schema {
  properties: Record<string, Property>;
  definitions: Record<string, Property>;
}

/** Paths of the schema, down to those that are described as a whole. */
function leaves(schema: Schema, properties: Record<string, Property>, described: string[], above = ""): string[] {
  return Object.entries(properties)
    .flatMap(([name, each]) => {
      const path = above + name;
      if (path === "global") return []; // what an umbrella chart sets for all its parts
      const below = (schema.definitions[each.$ref?.split("/").at(-1) ?? ""] ?? each).properties;
      return below && !described.includes(path) ? leaves(schema, below, described, `${path}.`) : [path];
    })
    .sort();
}

test("alerts and dashboard ask for metrics that exist", async () => {
  const registry = createMetrics("any");
  requestTimes(registry);
  ingestMetrics(registry);
  createOperatorMetrics(registry, () => undefined);
  const runtime = readFileSync(new URL("../runtime/supervisor/runtime-metrics.ts", import.meta.url), "utf8");
  const projection = readFileSync(new URL("../api/cluster/kap-projection.ts", import.meta.url), "utf8");
  const known = [
    ...registry.getMetricsAsArray().map(({ name }) => name),
    ...[...runtime.matchAll(/gauge\("([a-z_]+)"/g)].map(([, name]) => `kapstone_runtime_${name}`),
    ...[...projection.matchAll(/name: "(kapstone_[a-z_]+)"/g)].map(([, name]) => name),
  ];
  const asked = `${chartFile("files/alerts.yaml")}${chartFile("files/dashboard.json")}`.matchAll(
    /\b(?:kapstone|process|nodejs)_[a-z0-9_]+/g,
  );
  const names = new Set([...asked].map(([name]) => name.replace(/_(?:count|bucket|sum)$/, "")));
  expect(names.size).toBeGreaterThan(10);
  for (const name of names) expect(known).toContain(name);
});
