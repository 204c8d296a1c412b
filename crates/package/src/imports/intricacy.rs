//! How much work a component is to validate, besides its size.
//!
//! Guarantees: what the validator makes anew of types, because a component is instantiated once more, is bounded before it is made.
//!
//! SECURITY: each time that a component is instantiated, every type that leads to a resource exists once more. A few hundred kilobytes that
//! instantiate one component with many types a thousand times become gigabytes, and that in the process that reads packages of strangers.

use std::collections::HashSet;

use wasmparser::{
    component_types::{
        ComponentAnyTypeId, ComponentDefinedType, ComponentEntityType, ComponentItem, ComponentTypeId, ComponentValType,
    },
    types::TypesRef,
};

use super::ImportsError;

/// What instantiating has cost so far.
#[derive(Default)]
pub(super) struct Intricacy {
    types: usize,
}

impl Intricacy {
    /// Counts what instantiating a component makes at the most: each type once that it imports or exports, and those that they are made of.
    ///
    /// # Errors
    /// When that is too much, with what came before.
    pub(super) fn instantiate(&mut self, types: TypesRef<'_>, component: ComponentTypeId) -> Result<(), ImportsError> {
        let mut met = HashSet::new();
        let mut open = vec![ComponentAnyTypeId::Component(component)];
        while let Some(id) = open.pop() {
            if !met.insert(id) {
                continue;
            }
            let before = open.len();
            match id {
                ComponentAnyTypeId::Resource(_) => {}
                ComponentAnyTypeId::Defined(id) => types.get(id).into_iter().for_each(|one| parts(one, &mut open)),
                ComponentAnyTypeId::Func(id) => {
                    if let Some(function) = types.get(id) {
                        function.params.iter().for_each(|(_, kind)| value(kind, &mut open));
                        function.result.iter().for_each(|kind| value(kind, &mut open));
                    }
                }
                ComponentAnyTypeId::Instance(id) => {
                    let exports = types.get(id).into_iter().flat_map(|one| one.exports.values());
                    exports.for_each(|one| item(one, &mut open));
                }
                ComponentAnyTypeId::Component(id) => {
                    let items =
                        types.get(id).into_iter().flat_map(|one| one.imports.values().chain(one.exports.values()));
                    items.for_each(|one| item(one, &mut open));
                }
            }
            self.types = self.types.saturating_add(1).saturating_add(open.len().saturating_sub(before));
            if self.types > MOST_TYPES {
                return Err(ImportsError::TooIntricate);
            }
        }
        Ok(())
    }
}

fn item(item: &ComponentItem, open: &mut Vec<ComponentAnyTypeId>) {
    match item.ty {
        // Types of modules lead to no resource.
        ComponentEntityType::Module(_) => {}
        ComponentEntityType::Func(id) => open.push(ComponentAnyTypeId::Func(id)),
        ComponentEntityType::Value(kind) => value(&kind, open),
        ComponentEntityType::Type { referenced, created } => open.extend([referenced, created]),
        ComponentEntityType::Instance(id) => open.push(ComponentAnyTypeId::Instance(id)),
        ComponentEntityType::Component(id) => open.push(ComponentAnyTypeId::Component(id)),
    }
}

fn value(kind: &ComponentValType, open: &mut Vec<ComponentAnyTypeId>) {
    if let ComponentValType::Type(id) = kind {
        open.push(ComponentAnyTypeId::Defined(*id));
    }
}

fn parts(defined: &ComponentDefinedType, open: &mut Vec<ComponentAnyTypeId>) {
    match defined {
        ComponentDefinedType::Record(record) => record.fields.values().for_each(|kind| value(kind, open)),
        ComponentDefinedType::Variant(variant) => {
            variant.cases.values().filter_map(|case| case.ty.as_ref()).for_each(|kind| value(kind, open));
        }
        ComponentDefinedType::Tuple(tuple) => tuple.types.iter().for_each(|kind| value(kind, open)),
        ComponentDefinedType::List { element, .. } | ComponentDefinedType::FixedLengthList { element, .. } => {
            value(element, open);
        }
        ComponentDefinedType::Map { key, value: held, .. } => {
            [key, held].into_iter().for_each(|kind| value(kind, open))
        }
        ComponentDefinedType::Option { ty, .. } => value(ty, open),
        ComponentDefinedType::Result { ok, err, .. } => ok.iter().chain(err).for_each(|kind| value(kind, open)),
        // Nothing else is made of other types, among what skills may use.
        _ => {}
    }
}

/// What all instantiations of a program may make, in types. Those of large tool chains make some thousands; each is some hundred bytes.
pub(super) const MOST_TYPES: usize = 200_000;
