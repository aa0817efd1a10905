import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { configurationPage } from "../scripts/document-configuration.ts";

test("docs/configuration.md says what the configuration schemas say", () => {
  expect(readFileSync(new URL("../docs/configuration.md", import.meta.url), "utf8")).toBe(configurationPage());
});
