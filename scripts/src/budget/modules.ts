/** Preloaded before the program's sources: lists the files that are loaded. The chunks of the compiled program match them. @module */
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
