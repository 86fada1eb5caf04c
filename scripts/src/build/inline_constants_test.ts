import { expect, test } from "bun:test";
import { inline } from "./inline_constants.ts";

const declared = new Map([
  ["ffi/route/uapi.ts", new Map([["IFF_UP", "0x1"], ["AF_INET", "2"]])],
  ["ffi/route/link.ts", new Map([["IFNAMSIZ", "16"]])],
]);
const inlined = (text: string) => inline("ffi/route/link.ts", text, declared);

test("inline() replaces constants of the module itself and of those it imports, by name or as a whole", () => {
  const head = 'import { AF_INET, IFF_UP } from "./uapi.ts";\n';
  expect(inlined(`${head}f(AF_INET, IFF_UP | IFNAMSIZ, [IFF_UP]);`)).toBe(`${head}f(2, 0x1 | 16, [0x1]);`);
  const whole = 'import * as uapi from "./uapi.ts";\n';
  expect(inlined(`${whole}f(uapi.AF_INET, other.AF_INET, uapi.AF_NONE);`)).toBe(
    `${whole}f(2, other.AF_INET, uapi.AF_NONE);`,
  );
});

test("inline() leaves names alone that are something else", () => {
  for (
    const text of [
      'import {\n  AF_INET,\n} from "./uapi.ts";\nf("AF_INET", `AF_INET ${AF_INET}`); // AF_INET\n/* AF_INET */',
      'import { AF_INET } from "./uapi.ts";\nf({ AF_INET: 1 }, x.AF_INET, MY_AF_INET, AF_INET6);',
      "const IFNAMSIZ = 16;",
      "f(AF_INET);",
    ]
  ) expect(inlined(text)).toBe(text);
});
