import { parsePlPgSQLSync, parseSync } from "libpg-query";
import { membersOf, type SqlNode } from "./sql-tree.ts";

/** What is in the body of a function a program wants to make. */
export interface FunctionBody {
  /** Parsed statements, to be judged like any other. */
  statements: unknown[];
  /** Why the body as a whole is refused, or null. */
  refusal: string | null;
}

const dynamic = "EXECUTE is refused in functions: what it would run cannot be checked. Write the statement itself.";
const unreadable = (cause: string): string => `The function's body cannot be read: ${cause}.`;

/**
 * Reads the body of a `CREATE FUNCTION` or `CREATE PROCEDURE` (its parse tree, and the whole text it came in). A body is text to PostgreSQL's grammar: what
 * may not be sent as a statement must not get in by it. `ALTER ROLE … PASSWORD` of its own role is the one that no privilege can forbid.
 */
export function readFunctionBody(create: SqlNode, sql: string): FunctionBody {
  const options = new Map<string, unknown>();
  for (const { DefElem } of (create.options as { DefElem: { defname: string; arg: unknown } }[] | undefined) ?? [])
    options.set(DefElem.defname, DefElem.arg);
  const language = (textOf(options.get("language")) ?? "sql").toLowerCase();
  if (!options.has("as")) return { statements: [], refusal: null }; // BEGIN ATOMIC … END is in the tree already
  try {
    if (language === "sql") return { statements: parsed(bodyText(options.get("as"))), refusal: null };
    if (language === "plpgsql") return readPlpgsql(parsePlPgSQLSync(sql));
  } catch (error) {
    return { statements: [], refusal: unreadable(error instanceof Error ? error.message : String(error)) };
  }
  return { statements: [], refusal: `Functions in ${language} are refused: use sql or plpgsql.` };
}

const textOf = (node: unknown): string | undefined => (node as { String?: { sval?: string } } | undefined)?.String?.sval;
const bodyText = (node: unknown): string => textOf((node as { List?: { items?: unknown[] } }).List?.items?.[0]) ?? "";
const parsed = (sql: string): unknown[] => (parseSync(sql).stmts ?? []).map(({ stmt }) => stmt);

/** Walks the tree of a PL/pgSQL function: every statement it holds as text, and whether it makes statements from values. */
function readPlpgsql(tree: unknown): FunctionBody {
  const statements: unknown[] = [];
  for (const [name, value] of membersOf(tree)) {
    if (name === "PLpgSQL_stmt_dynexecute" || name === "PLpgSQL_stmt_dynfors" || name === "dynquery")
      return { statements: [], refusal: dynamic };
    if (name === "sqlstmt") for (const statement of parsed(queryOf(value))) statements.push(statement);
  }
  return { statements, refusal: null };
}

const queryOf = (node: unknown): string => (node as { PLpgSQL_expr?: { query?: string } }).PLpgSQL_expr?.query ?? "";
