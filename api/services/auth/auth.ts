import type { Service } from "../../http/route.ts";
import { apiKeyRoutes } from "./api-key-routes.ts";
import { auditRoutes } from "./audit-routes.ts";
import { emailRoutes } from "./email-routes.ts";
import { identityRoutes } from "./identity-routes.ts";
import { invitationRoutes } from "./invitation-routes.ts";
import { authJobs } from "./jobs.ts";
import { leakRoutes } from "./leak-routes.ts";
import { memberRoutes } from "./member-routes.ts";
import { mfaRoutes } from "./mfa-routes.ts";
import { passwordRoutes } from "./password-routes.ts";
import { roleRoutes } from "./role-routes.ts";
import { serviceTokenRoutes } from "./service-token-routes.ts";
import { sessionRoutes } from "./session-routes.ts";
import { settingsRoutes } from "./settings-routes.ts";
import { signInRoutes } from "./sign-in-routes.ts";

const bodyLimit = 1024 * 1024; // decided §2

/** Accounts, sessions, credentials, members, roles, settings and the audit: everything under /v1/auth, with its flat errors. */
export const authService: Service = {
  name: "auth",
  envelope: "flat",
  bodyLimit,
  routes: [
    ...signInRoutes,
    ...sessionRoutes,
    ...passwordRoutes,
    ...mfaRoutes,
    ...emailRoutes,
    ...settingsRoutes,
    ...memberRoutes,
    ...invitationRoutes,
    ...roleRoutes,
    ...apiKeyRoutes,
    ...serviceTokenRoutes,
    ...auditRoutes,
    ...leakRoutes,
  ],
  jobs: authJobs,
};

/** Who a credential stands for, and the keys of access tokens. */
export const identityService: Service = { name: "identity", envelope: "nested", bodyLimit, routes: identityRoutes };
