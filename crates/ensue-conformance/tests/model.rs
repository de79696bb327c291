//! Does the model keep the promises it holds others to?

use ensue_conformance::model::ModelFactory;

ensue_conformance::conformance_tests!(ModelFactory);
