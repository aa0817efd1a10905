import type { Service } from "../../http/route.ts";
import { audienceRoutes } from "./audience-routes.ts";
import { kapJobs } from "./jobs.ts";
import { kapRoutes } from "./kap-routes.ts";
import { tokenRoutes } from "./token-routes.ts";
import { versionRoutes } from "./version-routes.ts";

/** Body limit of the kaps service: all files of a version together (spec 3 §8 B). */
const kapsBodyLimit = 2 * 1024 * 1024;

/** Kaps: authoring and reaching them. */
export const kapsService: Service = {
  name: "kaps",
  envelope: "kaps",
  clientHeader: true,
  bodyLimit: kapsBodyLimit,
  routes: [...kapRoutes, ...versionRoutes, ...tokenRoutes, ...audienceRoutes],
  jobs: kapJobs,
};
