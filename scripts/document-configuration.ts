import { writeFileSync } from "node:fs";
import { clusterSettings } from "../api/cluster/settings.ts";
import { apiSettings } from "../api/config.ts";
import { migrateSettings } from "../api/migrate-settings.ts";
import { localSettings } from "../local/settings.ts";
import { mailIngestSettings } from "../mail-ingest/config.ts";
import { operatorSettings } from "../operator/config.ts";
import { documentSettings } from "../platform/config.ts";
import { runtimeSettings } from "../runtime/settings.ts";

/** docs/configuration.md, made from the schemas that read the environment. */
export function configurationPage(): string {
  return `# Configuration

Made from the configuration schemas; run \`npm run docs\` after changing one. Every value is read once, from the environment, and printed (secrets masked) at start.
\`npm start\` sets what it must (database, keys, tokens) by itself and keeps it in the data folder.

## npm start

${documentSettings(localSettings)}

## API

${documentSettings(apiSettings)}

In a cluster besides:

${documentSettings(clusterSettings)}

## Migration (the init container of the API)

${documentSettings(migrateSettings)}

## Operator

${documentSettings(operatorSettings)}

## Mail ingest

${documentSettings(mailIngestSettings)}

## Runtime

${documentSettings(runtimeSettings)}
`;
}

if (import.meta.main) writeFileSync(new URL("../docs/configuration.md", import.meta.url), configurationPage());
