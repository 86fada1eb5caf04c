/** Nothing: compiled as the product is, it shows what every start of the runtime costs. @module */
export {};
