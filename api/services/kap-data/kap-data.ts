import type { Service } from "../../http/route.ts";
import { dbRoutes } from "./db-routes.ts";
import { fileRoutes } from "./file-routes.ts";

const mebibyte = 1024 * 1024;

/** The kap's own database and file store over HTTP, on both bases of the contract. */
export const kapDataService: Service = {
  name: "kap-data",
  envelope: "kaps",
  clientHeader: true,
  bodyLimit: 2 * mebibyte,
  routes: [...dbRoutes, ...fileRoutes],
};
