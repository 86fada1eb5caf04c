/** Selectors of labels. @see Kubernetes API meta/v1 LabelSelector @module */
import { excerpt } from "../../spec/jsonc.ts";
import type { LabelObject, Labels } from "./labels.ts";

export interface LabelSelectorObject {
  readonly matchLabels?: LabelObject;
  readonly matchExpressions?: readonly {
    readonly key: string;
    readonly operator: string;
    readonly values?: readonly string[];
  }[];
}

export type Requirement =
  | { readonly key: string; readonly operator: "In" | "NotIn"; readonly values: readonly string[] }
  | { readonly key: string; readonly operator: "Exists" | "DoesNotExist" };

export interface LabelSelector {
  /** The same for selectors with the same requirements. The empty one selects all. */
  readonly text: string;
  readonly requirements: readonly Requirement[];
}

const OPERATORS: readonly string[] = ["In", "NotIn", "Exists", "DoesNotExist"];

/** The requirements that can be used: it selects no less than what was meant. */
export function widestSelector({ matchLabels = {}, matchExpressions = [] }: LabelSelectorObject): LabelSelector {
  return parseSelector({
    matchLabels,
    matchExpressions: matchExpressions.filter(({ operator }) => OPERATORS.includes(operator)),
  });
}

/** @throws {RangeError} for an operator that nobody knows */
export function parseSelector({ matchLabels = {}, matchExpressions = [] }: LabelSelectorObject): LabelSelector {
  const byText = new Map<string, Requirement>();
  const add = (requirement: Requirement) => byText.set(requirementText(requirement), requirement);
  for (const [key, value] of Object.entries(matchLabels)) add({ key, operator: "In", values: [value] });
  for (const { key, operator, values = [] } of matchExpressions) add(requirementOf(key, operator, values));
  const sorted = [...byText].sort(([a], [b]) => a < b ? -1 : 1);
  return { text: sorted.map(([text]) => text).join(), requirements: sorted.map(([, requirement]) => requirement) };
}

function requirementOf(key: string, operator: string, values: readonly string[]): Requirement {
  switch (operator) {
    case "In":
    case "NotIn":
      return { key, operator, values: [...new Set(values)].sort() };
    case "Exists":
    case "DoesNotExist":
      return { key, operator };
  }
  throw new RangeError(`operator ${excerpt(operator)} is none of ${OPERATORS.join(", ")}`);
}

export function selects({ requirements }: LabelSelector, labels: Labels): boolean {
  return requirements.every((requirement) => isMet(requirement, labels));
}

function isMet(requirement: Requirement, labels: Labels): boolean {
  const value = labels.get(requirement.key);
  switch (requirement.operator) {
    case "In":
      return value !== undefined && requirement.values.includes(value);
    case "NotIn":
      return value === undefined || !requirement.values.includes(value);
    case "Exists":
      return value !== undefined;
    case "DoesNotExist":
      return value === undefined;
  }
}

/** In the form that kubectl reads. */
function requirementText(requirement: Requirement): string {
  const key = quoted(requirement.key);
  switch (requirement.operator) {
    case "In":
      if (requirement.values.length === 1) return `${key}=${quoted(requirement.values[0]!)}`;
      return `${key} in (${requirement.values.map(quoted).join()})`;
    case "NotIn":
      return `${key} notin (${requirement.values.map(quoted).join()})`;
    case "Exists":
      return key;
    case "DoesNotExist":
      return `!${key}`;
  }
}

// Selectors of old objects may have values that no label can have.
const quoted = (text: string): string => /^[\w./-]*$/.test(text) ? text : JSON.stringify(text);
