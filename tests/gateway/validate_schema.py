"""validate_schema.py valid|invalid SCHEMA DOCUMENTS: whether the JSON documents, one a line, all pass or all fail the schema.
Exit status 0: as asked; 1: not; 77: python3-jsonschema is not installed."""

import json
import sys

try:
    import jsonschema
except ImportError:
    sys.exit(77)


def main():
    verb, schema_file, documents_file = sys.argv[1:]
    with open(schema_file, encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    wrong = 0
    with open(documents_file, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            errors = [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(json.loads(line))]
            if (verb == "valid") != (not errors):
                wrong += 1
                print(f"document {number} is {'not ' if errors else ''}valid: {errors[:3] or line[:500]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
