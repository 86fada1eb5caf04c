/**
 * Loaded before the program, from its sources: writes the files that were loaded when it ends, one per line, into the one that
 * `BUDGET_MODULES` names.
 *
 * The bundler keeps a module in a chunk that is loaded exactly when one of those that import it is, so that the sources tell
 * what the compiled program evaluates.
 *
 * @module
 */
import { appendFileSync, readFileSync } from "node:fs";

const output = process.env.BUDGET_MODULES ?? "";
delete process.env.BUDGET_MODULES;
if (output === "") throw new Error("Cannot count modules: BUDGET_MODULES names no file");

Bun.plugin({
  name: "count",
  setup(build) {
    build.onLoad({ filter: /\.[jt]s$/ }, ({ path }) => {
      appendFileSync(output, `${path}\n`);
      return { contents: readFileSync(path, "utf8"), loader: path.endsWith(".ts") ? "ts" : "js" };
    });
  },
});
